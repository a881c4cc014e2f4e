#!/usr/bin/env python3
"""Holds the arithmetic of memory and of time against published runs and prints the errors by publisher.

    cmake --build build/release --target bench_job
    python3 bench/job/score.py build/release/bench_job [--published published.csv] [--rows]

Without --published only the figures of tests/data/job_published.csv are scored, which stand there with their sources.
published.csv: columns as in the head of that file; other rows of the same kind. An error is the middle of the interval
over the published figure, less 1. "in" is the share of the rows whose figure lies inside the interval.
"""
import csv, json, statistics, subprocess, sys

FORM = {'llm-foundry': 'llm-foundry', 'torchtitan': 'torchtitan', 'maxtext': 'maxtext', 'llmq': 'llm.q', 'ml_dataflow': 'ml_dataflow',
        'dgxc-benchmarking': 'nemo', 'megatron-bridge': 'nemo', 'nemo-24.07': 'nemo', 'nemo-longctx': 'nemo'}
GPU = {'A100-80GB': 'A100-SXM4-80GB', 'A100-40GB': 'A100-SXM4-40GB', 'H100': 'H100-SXM5-80GB', 'H200': 'H200-SXM-141GB', 'B200': 'B200-SXM-HGX',
       'GB200': 'GB200-NVL72', 'GB300': 'GB300-NVL72', 'B300': 'B300-SXM-HGX', 'V100': 'V100-SXM2-32GB', 'RTX5090': 'RTX-5090', 'RTX4090': 'RTX-4090',
       'RTXPRO6000': 'RTX-PRO-6000-Blackwell'}


def fp8(precision):
    p = precision.lower()
    for word, number in (('nvfp4', 6), ('mxfp8', 5), ('blockwise', 4), ('rowwise', 3), ('current', 2), ('fp8', 2)):
        if word in p:
            return number
    return 0


def recompute(r):
    """recompute, recompute_option, recompute_layers; None where it is not stated."""
    text = r['recompute']
    if text.startswith('full on'):
        return 2, 'block', float(text.split()[2])
    if text == 'full':
        return 2, '', None
    if text.startswith('selective (per op)'):
        return 1, 'op', None
    if text.startswith('selective'):
        return 1, 'core_attn', None
    return (0, '', None) if text == 'none' else None


def num(r, k, otherwise=None):
    return float(r[k]) if r.get(k) else otherwise


def job(r):
    """A row of published.csv as settings; None where too little is stated."""
    if r['gpu'] not in GPU or not r['layers'] or not r['seq_len'] or r['task'].startswith(('SFT', 'LoRA', 'sft', 'lora')):
        return None
    g = r['source_group']
    heads = num(r, 'heads', num(r, 'hidden') / 128)
    j = {'id': r['row_id'], 'form': FORM.get(g, 'megatron'), 'seq': num(r, 'seq_len')}
    gpus, node = num(r, 'gpus'), num(r, 'gpus_per_node', 8)
    if r['gpu'] in ('GB200', 'GB300'):
        node = 72
    node = min(node, gpus)
    while gpus % node:
        node -= 1
    j['cluster'] = f'{gpus / node:.0f}x{node:.0f}x{GPU[r["gpu"]]}'
    j.update({'m.family': 1 if r['mlp_matrices'] == '2' else 0, 'm.layers': r['layers'], 'm.hidden': r['hidden'], 'm.heads': f'{heads:.0f}',
              'm.kv_heads': f"{num(r, 'kv_heads', heads):.0f}", 'm.head_dim': f"{num(r, 'head_dim', num(r, 'hidden') / heads):.0f}", 'm.ffn': r['ffn'],
              'm.vocab': r['vocab'], 'm.gated': int(r['mlp_matrices'] == '3'), 'm.tied': int('tied emb' in r['other_opts'])})
    p = r['precision']
    j['dtype'] = 1 if p.startswith('fp16') else 0
    if p.startswith('bf16-pure'):
        j['param_dtype'] = 1
    if fp8(p):
        j['fp8'] = fp8(p)
    for key, col in (('tp', 'tp'), ('pp', 'pp'), ('cp', 'cp'), ('ep', 'ep'), ('pp_virtual', 'vp'), ('zero', 'zero_stage'), ('sequence_parallel', 'sp')):
        if r[col]:
            j[key] = r[col]
    if num(r, 'vp', 1) > 1:
        j['pp_schedule'] = 2
    elif num(r, 'pp', 1) > 1:
        j['pp_schedule'] = 1
    if num(r, 'pp', 1) * num(r, 'vp', 1) > num(r, 'layers'):  # Llama 405B: 126 layers and both ends in 128 parts
        j['pp_embedding_counts'] = j['pp_loss_counts'] = 1
    if not r['zero_stage']:
        j['zero'] = 1 if j['form'] in ('megatron', 'nemo') else 0
    if r['micro_batch']:
        j['micro_batch'] = r['micro_batch']
    if r['global_batch_seqs']:
        j['global_batch'] = r['global_batch_seqs']
    elif r['grad_accum']:
        j['accumulation'] = r['grad_accum']
    else:
        return None
    again = recompute(r)
    if again:
        j['recompute'] = again[0]
        if again[1]:
            j['recompute_option'] = again[1]
        if again[2]:
            j['recompute_layers'] = again[2]
    if g == 'bloom':
        # Megatron-DeepSpeed of 2022: scores stored, fused norms and GELU, 4 adapters of 100 Gbit/s for 8 devices.
        j.update({'form': 'megatron-deepspeed', 'attention': 0, 'sequence_parallel': 0, 'clip': 1, 'net_gbit': 50, 'fused_norm': 1, 'fused_activation': 1})
        if 'fp32 grad' in p:
            j['grad_accumulate'] = 0
    if g == 'simumax':
        j.update({'compile_loss': 1, 'attention': 3, 'grad_accumulate': 0})
    if g in ('dgxc-benchmarking', 'megatron-bridge', 'nemo-24.07', 'nemo-longctx'):
        # Recipes of NVIDIA: overlapped gradients and weights, fused attention; tensor parallelism overlapped.
        j.update({'attention': 3, 'grad_overlap': 1, 'param_overlap': 1, 'tp_overlap': 1, 'sequence_parallel': 1, 'compile_loss': 1})
        if not again:
            j['recompute'] = 0
    if g == 'llm-foundry':
        j.update({'compile': 0, 'compile_loss': 0})  # attention in Triton, which no setting names
    return j


def run(bench, jobs):
    text = ''.join('\t'.join(f'{k}={v}' for k, v in j.items()) + '\n' for j in jobs)
    out = subprocess.run([bench], input=text, capture_output=True, text=True)
    if out.stderr:
        print(out.stderr, file=sys.stderr)
    return [json.loads(line) for line in out.stdout.splitlines()]


PARTS = ('weights', 'gradients', 'optimizer', 'activations', 'logits', 'buffers')


def memory_of(o, kind):
    """GiB as the publisher counts: `allocated` in tensors, `reserved` by the allocator, `used` by the whole process."""
    if o['memory'][0] is None:
        return None
    inside = [sum(o[p][i] for p in PARTS) / 2**30 for i in (0, 1)]
    if kind == 'reserved':
        return [inside[0] * 1.02, inside[1] * 1.08]
    return [x / 2**30 for x in o['memory']] if kind == 'used' else inside


def table(title, rows, show):
    """rows: (group, id, low, high, truth)"""
    print(f'\n{title}\n{"":24}{"rows":>6}{"bias":>8}{"median":>8}{"p90":>8}{"worst":>8}{"in":>7}{"width":>8}')
    groups = sorted({r[0] for r in rows})
    for g in groups + ['all']:
        of = [r for r in rows if g in ('all', r[0])]
        e = [(r[2] + r[3]) / 2 / r[4] - 1 for r in of]
        a = sorted(abs(x) for x in e)
        inside = sum(r[2] <= r[4] <= r[3] for r in of) / len(of)
        width = statistics.median((r[3] - r[2]) / (r[3] + r[2]) for r in of)
        p90 = a[min(len(a) - 1, int(0.9 * len(a)))]
        print(f'{g:24}{len(of):6}{statistics.median(e):8.1%}{statistics.median(a):8.1%}{p90:8.1%}{a[-1]:8.1%}{inside:7.0%}  +-{width:.0%}')
    if show:
        for r in rows:
            flag = '' if r[2] <= r[4] <= r[3] else '  outside'
            print(f'  {r[0]:16} {r[1]:28} {r[2]:10.4g} .. {r[3]:10.4g}  published {r[4]:10.4g} {(r[2] + r[3]) / 2 / r[4] - 1:+7.1%}{flag}')


def own_rows(path):
    """tests/data/job_published.csv: group, id, kind, memory_gib, tokens_s, source, settings (words with blanks)."""
    for r in csv.DictReader(line for line in open(path) if not line.startswith('#')):
        j = dict(w.split('=', 1) for w in r['settings'].split())
        yield {'id': r['id'], **j}, r


def main():
    bench, show = sys.argv[1], '--rows' in sys.argv
    jobs, truth = [], []
    for j, r in own_rows('tests/data/job_published.csv'):
        jobs.append(j)
        truth.append((r['group'], r['kind'], float(r['memory_gib'] or 'nan'), float(r['tokens_s'] or 'nan')))
    if '--published' in sys.argv:
        for r in csv.DictReader(open(sys.argv[sys.argv.index('--published') + 1])):
            j = None if r['is_moe'] == '1' or r['consistency_flag'] else job(r)
            if not j or r['source_group'] in ('ml_dataflow', 'simumax'):
                continue
            g, mem = r['source_group'], float(r['peak_mem_gib'] or 'nan')
            if g == 'megatron-paper':
                mem = float('nan')  # a formula's figure, not a measured one
            jobs.append(j)
            truth.append((g, 'used' if g == 'bloom' else 'allocated', mem, float(r['derived_tokens_per_s_per_gpu'] or 'nan')))
    memory, step, unknown = [], [], {}
    for o, (g, kind, mem, tok) in zip(run(bench, jobs), truth):
        for what in ('memory_unknown', 'step_unknown'):
            if o[what]:
                unknown[(g, what, o[what])] = unknown.get((g, what, o[what]), 0) + 1
        m = memory_of(o, kind)
        if m and mem == mem:
            memory.append((g, o['id'], *m, mem))
        if o['tokens_s'][0] and tok == tok:
            step.append((g, o['id'], *o['tokens_s'], tok))
    table('memory of one device, GiB', memory, show)
    table('tokens/s of one device', step, show)
    for (g, what, why), n in sorted(unknown.items()):
        print(f'{n} rows of {g}: {what}: {why}')


if __name__ == '__main__':
    main()
