/* The tables of log.jsonl and run.json: what src/train writes and fo_record_open reads (docs/formats.md). */
#include "record/record.h"

#define LINE_HEAD(S) FO_FIELD(S, step, "step", "", "steps done so far", .high = 0x1p53)
#define LINE_TAIL(S)                                                                               \
	FO_FIELD(S, time, "time", "s", "Unix time when the line was written, to the millisecond"), \
		FO_FIELD(S, clock, "clock", "s",                                                   \
			 "the same by a clock that nobody sets: differences within one process count")
/* fo_log_NAME, from the rows NAME_field of struct fo_record_RECORD. */
#define LINE_TABLE(record, name)                                                           \
	const struct fo_schema fo_log_##name = { "log." #name, "log line", .event = #name, \
						 FO_FIELDS(struct fo_record_##record, name##_field) }
#define COUNT .high = 0x1p53

/* ---- steps ---- */

static const struct fo_schema_field step_field[] = { LINE_HEAD(struct fo_record_step),
#define X(name, key, unit, means)                                                                \
	{ key, unit, means, FO_STEP_##name == FO_STEP_METERED ? FO_SCHEMA_MARK : FO_SCHEMA_REAL, \
	  FO_SCHEMA_AT(struct fo_record_step, value[FO_STEP_##name]) },
						     FO_STEP_FIELDS(X)
#undef X
};
LINE_TABLE(step, step);

/* ---- evaluations and checkpoints ---- */

static const struct fo_schema_field eval_field[] = {
	LINE_HEAD(struct fo_record_eval),
	FO_FIELD(struct fo_record_eval, loss, "loss", "nats per token", "mean held-out loss"),
	LINE_TAIL(struct fo_record_eval),
};
LINE_TABLE(eval, eval);

#define CHECKPOINT(m, ...) FO_FIELD(struct fo_record_checkpoint, m, __VA_ARGS__)
static const struct fo_schema_field checkpoint_field[] = {
	LINE_HEAD(struct fo_record_checkpoint),
	CHECKPOINT(path, "path", "", "its folder"),
	CHECKPOINT(seconds, "seconds", "s", "time of writing it"),
	CHECKPOINT(blocked_seconds, "blocked_seconds", "s", "time that training waited for it"),
	LINE_TAIL(struct fo_record_checkpoint),
};
LINE_TABLE(checkpoint, checkpoint);

/* ---- the machine, and where the time went ---- */

static const struct fo_schema_field machine_field[] = {
	LINE_HEAD(struct fo_record_machine),
	FO_FIELD_RECORD(struct fo_record_machine, use, &fo_state_use_schema, "", "", .flags = FO_INLINE),
	FO_FIELD_RECORD(struct fo_record_machine, device, &fo_nvml_use_schema, "device",
			"the device, where the run is on one: by NVML", .flags = FO_POINTER | FO_OMIT | FO_WRITE_ONLY),
	LINE_TAIL(struct fo_record_machine),
};
LINE_TABLE(machine, machine);

#define PARTS(S)                                                                                   \
	FO_FIELD_AS(BY_NAME, S, profile.part_ns, "parts", "s",                                     \
		    "time by [part of the step](metrics.md#where-the-step-time-goes)", .per = 1e9, \
		    .names = fo_part_name, .elements = FO_PART_COUNT)
static const struct fo_schema_field profile_field[] = {
	LINE_HEAD(struct fo_record_profile),
	FO_FIELD(struct fo_record_profile, profile.steps, "steps", "", "steps since the line before, none metered",
		 COUNT),
	PARTS(struct fo_record_profile),
	LINE_TAIL(struct fo_record_profile),
};
LINE_TABLE(profile, profile);

/* ---- guards ---- */

#define DOCUMENT(m, ...) FO_FIELD(struct fo_record_document, m, __VA_ARGS__)
static const struct fo_schema_field document_field[] = {
	DOCUMENT(document, "document", "", "its number in `train.shard`, from 0"),
	DOCUMENT(path, "path", "", "file it came from; null: not known", .flags = FO_NULLS),
	DOCUMENT(line, "line", "", "line of that file; 0: the whole file"),
};
static const struct fo_schema document_schema = { "", "document",
						  FO_FIELDS(struct fo_record_document, document_field) };

#define GUARD(m, ...) FO_FIELD(struct fo_record_guard, m, __VA_ARGS__)
#define BATCH                                                                                             \
	GUARD(data_step, "data_step", "", "the loader's step, from 0", .absent = -1, COUNT),              \
		FO_FIELD_LIST(struct fo_record_guard, document, documents, &document_schema, "documents", \
			      "of the batch, at most 64", .flags = FO_POINTER, .elements = 1 << 16)
static const struct fo_schema_field nonfinite_field[] = {
	LINE_HEAD(struct fo_record_guard),
	GUARD(action, "action", "", "`stop` or `skip`"),
	GUARD(loss, "loss", "nats per token", "null: not finite"),
	GUARD(grad_norm, "grad_norm", "", "null: not finite"),
	GUARD(where, "where", "", "the sentence that names the operation"),
	BATCH,
	LINE_TAIL(struct fo_record_guard),
};
LINE_TABLE(guard, nonfinite);

static const struct fo_schema_field spike_field[] = {
	LINE_HEAD(struct fo_record_guard),
	GUARD(action, "action", "", "`warn`, `skip` or `rewind`"),
	GUARD(loss, "loss", "nats per token", "of the step"),
	GUARD(median, "median", "nats per token", "of the steps before"),
	GUARD(deviation, "deviation", "nats per token", "of the steps before, a robust standard deviation"),
	GUARD(z, "z", "", "deviations above the median"),
	GUARD(back_to, "back_to", "", "the step gone back to", .flags = FO_OMIT, .absent = -1, COUNT),
	BATCH,
	LINE_TAIL(struct fo_record_guard),
};
LINE_TABLE(guard, spike);

/* ---- processes ---- */

#define START(m, ...) FO_FIELD(struct fo_record_start, m, __VA_ARGS__)
static const struct fo_schema_field start_field[] = {
	LINE_HEAD(struct fo_record_start),
	START(program_hash, "program_hash", "", "hash of the step program, 16 hexadecimal digits"),
	START(isa, "isa", "", "kernel set; `paced`: operations took given times and computed nothing"),
	START(threads, "threads", "", "threads that compute", .absent = -1, COUNT),
	START(peak_dtype, "peak_dtype", "", "data type of the peak"),
	START(peak_flop_s, "peak_flop_s", "FLOP/s", "peak that the MFU of its steps divides by; null: unknown"),
	START(arena_bytes, "arena_bytes", "B",
	      "planned: activations and gradients; these five are of the device's memory on a device"),
	START(persistent_bytes, "persistent_bytes", "B", "planned: weights and optimizer state"),
	START(workspace_bytes, "workspace_bytes", "B", "planned: scratch memory of kernels"),
	START(other_bytes, "other_bytes", "B", "planned: everything else"),
	START(checkpoint_bytes, "checkpoint_bytes", "B",
	      "planned: the copy a checkpoint is written from; 0: training waits"),
	START(device, "device", "", "name of the device", .flags = FO_OMIT),
	START(device_reserve_bytes, "device_reserve_bytes", "B", "device memory left alone", .flags = FO_OMIT),
	START(host_bytes, "host_bytes", "B", "planned in host memory beside the device's", .flags = FO_OMIT),
	LINE_TAIL(struct fo_record_start),
};
LINE_TABLE(start, start);

#define DEVICE(m, ...) FO_FIELD(struct fo_record_device, m, __VA_ARGS__)
static const struct fo_schema_field device_field[] = {
	FO_FIELD_RECORD(struct fo_record_device, use, &fo_nvml_use_schema, "", "", .flags = FO_INLINE),
	DEVICE(joules_per_token, "joules_per_token", "J", "energy of the device per token with loss"),
	DEVICE(split.clock, "mfu_clock", "share",
	       "mean clock over the clock of the peak; times the next two it is the MFU"),
	DEVICE(split.work, "mfu_work", "share", "FLOP that ran over those that this clock gives"),
	DEVICE(split.counted, "mfu_counted", "ratio", "FLOP that the rule counts over those that ran"),
	DEVICE(split.peak_hz, "peak_clock_hz", "Hz", "clock at which the device reaches its peak"),
	DEVICE(split.pipes, "tensor_pipes", "share of cycles", "a tensor pipe was active"),
	DEVICE(split.ofu, "ofu", "share", "`mfu_clock` x `tensor_pipes` ([OFU](metrics.md#ofu))"),
	DEVICE(split.useful, "mfu_useful", "ratio", "MFU over `ofu`"),
	DEVICE(split.why, "ofu_why", "", "why `ofu` is null", .flags = FO_NULLS | FO_VISIBLE),
};
const struct fo_schema fo_record_device_schema = { "", "device", FO_FIELDS(struct fo_record_device, device_field) };

struct fo_record_device fo_record_no_device(void)
{
	struct fo_record_device d = { 0 };
	fo_schema_blank(&fo_record_device_schema, &d);
	return d;
}

#define END(m, ...) FO_FIELD(struct fo_record_end, m, __VA_ARGS__)
static const struct fo_schema_field end_field[] = {
	LINE_HEAD(struct fo_record_end),
	END(how, "how", "", "`done`, `interrupted` or `failed`"),
	END(steps, "steps", "", "steps that the process did", COUNT),
	END(profile.steps, "timed_steps", "", "steps that were neither metered nor the first", COUNT),
	END(seconds, "seconds", "s", "time of these"),
	PARTS(struct fo_record_end),
	END(planned_bytes, "planned_bytes", "B", "memory as planned"),
	END(measured_bytes, "measured_bytes", "B", "memory as measured"),
	END(joules_per_token, "joules_per_token", "J", "energy of the machine per token with loss"),
	FO_FIELD_OPTIONAL(struct fo_record_end, device, device.told, &fo_record_device_schema, "device",
			  "the device while the steps ran", .flags = FO_OMIT),
	END(huge_page_share, "huge_page_share", "share", "memory in huge pages"),
	END(padding_share, "padding_share", "share", "padding among the tokens processed"),
	END(truncated_share, "truncated_share", "share", "of the tokens read: cut off documents longer than a row"),
	LINE_TAIL(struct fo_record_end),
};
LINE_TABLE(end, end);

/* ---- run.json ---- */

#define OPTION(m, ...) FO_FIELD(struct fo_record_option, m, __VA_ARGS__)
static const struct fo_schema_field option_field[] = {
	OPTION(key, "key", "", "name of the option"),
	FO_FIELD_AS(SCALAR, struct fo_record_option, value, "value", "", "effective value; null: not set"),
	OPTION(origin, "origin", "", "`default`, `file`, `environment`, `flag`"),
	OPTION(where, "where", "", "place in it"),
};
static const struct fo_schema option_schema = { "", "option", FO_FIELDS(struct fo_record_option, option_field) };

#define RUN(m, ...) FO_FIELD(struct fo_record, m, __VA_ARGS__)
static const struct fo_schema_field flatout_field[] = {
	RUN(version, "version", "", "of the program"),
	RUN(commit, "commit", "", "of its source"),
	RUN(compiler, "compiler", "", "it was built with"),
};
static const struct fo_schema flatout_schema = { "", "program", FO_FIELDS(struct fo_record, flatout_field) };

static const struct fo_schema_field command_field[] = {
	RUN(started, "started", "", "UTC"),
	FO_FIELD_GROUP(&flatout_schema, "flatout", "what `flatout --version --json` says; among it"),
	FO_FIELD_MAP(struct fo_record, option, options, &option_schema, "options", "by name", .flags = FO_POINTER,
		     .elements = 1 << 16),
};
static const struct fo_schema command_schema = { "", "command", FO_FIELDS(struct fo_record, command_field) };

static const struct fo_schema_field computer_field[] = {
	RUN(cpu, "cpu", "", "name of the processor"),
	RUN(threads, "threads", "", "threads that compute; of each process where there are several", .absent = -1),
	RUN(processes, "processes", "", "ranks that are processes", .flags = FO_OMIT),
	RUN(hosts, "hosts", "", "hosts that they ran on", .flags = FO_OMIT),
	RUN(isa, "isa", "", "kernel set; `paced`: operations took the times of `paced.json` and computed nothing"),
	RUN(peak_flop_s, "peak_flop_s", "FLOP/s", "peak that MFU divides by", .low = 0x1p-1022, .high = 1e308),
	RUN(peak_source, "peak_source", "", "where that is from"),
	RUN(device, "device", "", "name of the device the run is on", .flags = FO_OMIT),
	RUN(affinity, "affinity", "", "where threads are bound: option `run.affinity`"),
	FO_FIELD_RECORD(struct fo_record, state, &fo_machine_schema, "state", "the [machine](#machine) at the start"),
};
static const struct fo_schema computer_schema = { "", "machine", FO_FIELDS(struct fo_record, computer_field) };

static const struct fo_schema_field run_field[] = {
	FO_FIELD_AS(RAW, struct fo_record, run, "run", "", "", .flags = FO_WRITE_ONLY),
	FO_FIELD_GROUP(&command_schema, "run", "what was asked for", .flags = FO_READ_ONLY),
	RUN(passes, "passes", "", "passes that the program went through"),
	FO_FIELD_GROUP(&computer_schema, "machine", "what it ran on"),
	RUN(seed, "seed", "", "seed of the run", .absent = -1),
	RUN(tokenizer_checksum, "tokenizer_checksum", "", "16 hexadecimal digits, as the next three"),
	RUN(train_checksum, "train_shard_checksum", "", "of `train.shard`"),
	RUN(val_checksum, "val_shard_checksum", "", "of `val.shard`"),
	RUN(program_hash, "program_hash", "", "of the step program"),
};
const struct fo_schema fo_run_schema = { "run", "run.json", 1, FO_FIELDS(struct fo_record, run_field) };
