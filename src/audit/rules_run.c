/* Rules about contradictions, and about what happens around the step: data, checkpoints, logs, the host. */
#include "audit/config_int.h"

#include <string.h>

/* ---- contradictions ---- */

static bool contradicts(const struct fo_site *s) { return s->shape->wrong != NULL; }

static void look_contradiction(struct fo_site *s)
{
	fo_site_report(s, FO_AUDIT_SERIOUS, s->shape->wrong_setting, s->shape->wrong_try, s->shape->wrong,
		       "The job stops when it starts, or divides its work in "
		       "another way than its file says.",
		       NULL);
}

static bool misses_file(const struct fo_site *s) { return s->job->value[FO_JOB_MISSING_FILE].text != NULL; }

static void look_missing(struct fo_site *s)
{
	fo_site_report(s, FO_AUDIT_SERIOUS, FO_JOB_MISSING_FILE, "give that file as well",
		       fo_site_say(s, "The settings are in another file: %s", s->job->value[FO_JOB_MISSING_FILE].text),
		       "What it states is unknown here, and the job stops where the file is missing.", NULL);
}

static bool notes(const struct fo_site *s) { return s->job->notes > 0; }

/* "job.args:55: '--split' is given twice": the place is evidence, the rest the title. */
static void look_notes(struct fo_site *s)
{
	for (int64_t i = 0; i < s->job->notes; i++) {
		const char *note = s->job->note[i], *title = strstr(note, ": ");
		bool place = title && title > note && title[-1] >= '0' && title[-1] <= '9';
		fo_audit_add(s->audit, (struct fo_audit_finding){
					       .id = s->rule->id,
					       .level = FO_AUDIT_NOTE,
					       .title = place ? title + 2 : note,
					       .why = "A reader may take one statement for the other.",
					       .evidence = place ? fo_site_say(s, "%.*s", (int)(title - note), note)
								 : "the files",
					       .gain = { NAN, NAN },
				       });
	}
}

static bool steps_in_backward(const struct fo_site *s) { return fo_site_is(s, FO_JOB_OPTIMIZER_IN_BACKWARD, 1); }

static void look_clip(struct fo_site *s)
{
	if (!(fo_job_number(s->job, FO_JOB_CLIP) > 0))
		return;
	fo_site_report(
		s, FO_AUDIT_ADVICE, FO_JOB_CLIP, "0, or the optimizer after backward",
		"Gradients are not clipped, although a largest norm is stated",
		"Weights are updated during backward, before the norm of all gradients is known: frameworks skip the "
		"clipping without a word, or refuse it.",
		"PyTorch tutorial, optimizer step in backward; Lambda's fork of torchtitan, train.py");
}

/* A cluster of another size than the file's own. */
static bool states_devices(const struct fo_site *s)
{
	return fo_job_known(s->job, FO_JOB_DEVICES) && s->cluster->from &&
	       strcmp(s->cluster->from, "the configuration") != 0;
}

static void look_devices(struct fo_site *s)
{
	double stated = fo_job_number(s->job, FO_JOB_DEVICES);
	if (isnan(s->cluster->devices) || !(stated > 0) || stated == s->cluster->devices)
		return;
	fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_DEVICES, fo_site_say(s, "%.0f", s->cluster->devices),
		       fo_site_say(s, "The file is for %.0f device%s, the cluster has %.0f", stated, fo_plural(stated),
				   s->cluster->devices),
		       "Figures here are for the cluster.", NULL);
}

static void look_fsdp(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_FSDP_VERSION, 1))
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_FSDP_VERSION, "2", "Sharding is that of FSDP 1",
			       "FSDP 2 shards each weight by itself: less memory, no copies into flat buffers.",
			       "PyTorch 2.15, torch.distributed.fsdp.fully_shard");
}

static void look_position(struct fo_site *s)
{
	double most = fo_job_number(s->job, FO_JOB_MAX_POSITION), seq = fo_job_number(s->job, FO_JOB_SEQ);
	if (seq > most)
		fo_site_report(s, FO_AUDIT_SERIOUS, FO_JOB_MAX_POSITION, fo_site_say(s, "%.0f or more", seq),
			       fo_site_say(s, "Sequences of %.0f tokens are longer than the %.0f positions", seq, most),
			       "The job stops at the first batch, or reads positions that nobody trained.", NULL);
	else if (seq < most && fo_job_stated(s->job, FO_JOB_MAX_POSITION))
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_MAX_POSITION, NULL,
			       fo_site_say(s, "Positions are made for %.0f tokens, sequences have %.0f", most, seq),
			       "It costs little; the model does not learn the longer distances.", NULL);
}

/* ---- data ---- */

static void look_packed(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_PACKED, 0))
		fo_site_report(
			s, FO_AUDIT_ADVICE, FO_JOB_PACKED, "documents packed into full rows",
			"Rows are padded: padding is computed like text",
			"The share of padding is lost throughput. Packing with a document mask keeps documents apart.",
			"Krell et al. 2021: half of the tokens of common data sets are padding");
}

/* What a framework does unless it is told: a user of it may not even be able to change it. */
static enum fo_audit_level stated_level(const struct fo_site *s, enum fo_job_setting x)
{
	return fo_job_stated(s->job, x) ? FO_AUDIT_ADVICE : FO_AUDIT_NOTE;
}

static void look_workers(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_LOADER_WORKERS, 0))
		fo_site_report(s, stated_level(s, FO_JOB_LOADER_WORKERS), FO_JOB_LOADER_WORKERS,
			       "4, up to the processor cores for each device",
			       "Batches are made by the process that launches the step",
			       "The device waits while text is read and tokenized.",
			       "PyTorch 2.15, DataLoader(num_workers=)");
}

static void look_pinned(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_LOADER_PINNED, 0))
		fo_site_report(s, stated_level(s, FO_JOB_LOADER_PINNED), FO_JOB_LOADER_PINNED, "on",
			       "Batches are copied from pageable memory",
			       "Such a copy blocks the host until it is done.", "Lambda 2026, section 3.2");
}

/* ---- checkpoints ---- */

static void look_restart(struct fo_site *s)
{
	if (!fo_site_is(s, FO_JOB_LOAD_OPTIMIZER, 0) || fo_site_is(s, FO_JOB_CHECKPOINT, 0))
		return;
	const char *try = "on, except for the first start from other weights";
	if (fo_site_negated(s, FO_JOB_LOAD_OPTIMIZER))
		try = "remove it, except for the first start from other weights";
	/* --finetune starts from other weights, where a fresh optimizer is right: only its restarts lose something. */
	const char *key = s->job->value[FO_JOB_LOAD_OPTIMIZER].key;
	enum fo_audit_level level = key && strstr(key, "finetune") ? FO_AUDIT_ADVICE : FO_AUDIT_SERIOUS;
	fo_site_report(s, level, FO_JOB_LOAD_OPTIMIZER, try, "A restart throws the optimizer's state away",
		       "Moments and step count begin anew at every restart: the loss jumps, and nothing says why. For "
		       "one start from another run's weights it is right.",
		       "Megatron-LM, --no-load-optim");
}

static void look_checkpoint(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_CHECKPOINT, 0))
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_CHECKPOINT, "on, for anything but a benchmark",
			       "No checkpoint is saved", "A failure loses the whole run.", NULL);
}

static void look_async(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_CHECKPOINT_ASYNC, 0) && !fo_site_is(s, FO_JOB_CHECKPOINT, 0))
		fo_site_report(s, FO_AUDIT_ADVICE, FO_JOB_CHECKPOINT_ASYNC, "on",
			       "Training stops while a checkpoint is written",
			       "Copied to host memory first, states are written while the next steps run.",
			       "PyTorch 2.15, torch.distributed.checkpoint.async_save; Megatron-LM, --async-save");
}

/* ---- the host and what it prints ---- */

static void look_profiling(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_PROFILING, 1))
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_PROFILING, "off, once there is a trace", "A profiler is on",
			       "Recorded steps are slower and leave large files; steps between them are not.", NULL);
}

/* A line of each step reads the loss from the device; a hundred steps hide slow ones. */
#define LOG_SELDOM 100

static void look_log(struct fo_site *s)
{
	double every = fo_job_number(s->job, FO_JOB_LOG_EVERY);
	if (every == 1)
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_LOG_EVERY, "10", "Each step's loss is read and printed",
			       "The host waits for the device at each line; short steps feel it.", NULL);
	else if (every >= LOG_SELDOM)
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_LOG_EVERY, "10",
			       fo_site_say(s, "One line for %.0f steps hides slow ones", every),
			       "A stall of single steps vanishes in the mean.", NULL);
}

static void look_affinity(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_CPU_AFFINITY, 0))
		fo_site_report(s, FO_AUDIT_NOTE, FO_JOB_CPU_AFFINITY, "on",
			       "Processes are not bound to the cores beside their device",
			       "On two sockets launches and copies may cross the link between them.",
			       "Lambda 2026, section 4.1");
}

static void look_gc(struct fo_site *s)
{
	if (fo_site_is(s, FO_JOB_GC_MANUAL, 0) && s->shape->devices > s->domain)
		fo_site_report(s, FO_AUDIT_ADVICE, FO_JOB_GC_MANUAL, "on, all ranks at the same steps",
			       "Every rank collects garbage when it likes, and all others wait for it",
			       "At the same steps the pauses coincide.", "Jiang et al. 2024 (MegaScale), section 6.3");
}

const struct fo_config_rule fo_config_rules_run[] = {
	{ .id = "contradiction",
	  .look = look_contradiction,
	  .concerns = contradicts,
	  .when = "degrees, devices and batch sizes contradict each other" },
	{ .id = "missing-file",
	  .look = look_missing,
	  .concerns = misses_file,
	  .when = "the file refers to another one that was not given" },
	{ .id = "stated-twice",
	  .look = look_notes,
	  .concerns = notes,
	  .when = "the reader saw a setting twice, or two that exclude each other (note)" },
	{ .id = "clip-in-backward",
	  .settings = 1,
	  .setting = { FO_JOB_CLIP },
	  .look = look_clip,
	  .concerns = steps_in_backward,
	  .when = "a largest gradient norm is stated and weights are updated during backward" },
	{ .id = "devices-differ",
	  .settings = 1,
	  .setting = { FO_JOB_DEVICES },
	  .look = look_devices,
	  .concerns = states_devices,
	  .when = "the cluster has another number of devices than the file (note)" },
	{ .id = "fsdp-version",
	  .forms = "accelerate transformers trl axolotl llama hf",
	  .settings = 1,
	  .setting = { FO_JOB_FSDP_VERSION },
	  .look = look_fsdp,
	  .when = "FSDP 1 (note)" },
	{ .id = "positions",
	  .settings = 2,
	  .setting = { FO_JOB_SEQ, FO_JOB_MAX_POSITION },
	  .look = look_position,
	  .forms = "megatron nemo",
	  .when = "sequences longer than the positions (serious), or positions that no sequence reaches (note)" },
	{ .id = "padding",
	  .settings = 1,
	  .setting = { FO_JOB_PACKED },
	  .look = look_packed,
	  .when = "documents are padded instead of packed" },
	{ .id = "loader-workers",
	  .settings = 1,
	  .setting = { FO_JOB_LOADER_WORKERS },
	  .look = look_workers,
	  .when = "a data loader without processes of its own (a note where that is the framework's default)" },
	{ .id = "loader-pinned",
	  .settings = 1,
	  .setting = { FO_JOB_LOADER_PINNED },
	  .look = look_pinned,
	  .when = "batches in pageable memory (a note where that is the framework's default)" },
	{ .id = "restart-state",
	  .settings = 1,
	  .setting = { FO_JOB_LOAD_OPTIMIZER },
	  .look = look_restart,
	  .when = "a restart does not load the optimizer's state" },
	{ .id = "checkpoint-off",
	  .settings = 1,
	  .setting = { FO_JOB_CHECKPOINT },
	  .look = look_checkpoint,
	  .when = "no checkpoints (note)" },
	{ .id = "checkpoint-async",
	  .settings = 1,
	  .setting = { FO_JOB_CHECKPOINT_ASYNC },
	  .look = look_async,
	  .when = "checkpoints stop training" },
	{ .id = "profiling",
	  .settings = 1,
	  .setting = { FO_JOB_PROFILING },
	  .look = look_profiling,
	  .when = "a profiler is on (note)" },
	{ .id = "log-interval",
	  .settings = 1,
	  .setting = { FO_JOB_LOG_EVERY },
	  .look = look_log,
	  .when = "a log line for each step, or for a hundred and more (note)" },
	{ .id = "cpu-affinity",
	  .settings = 1,
	  .setting = { FO_JOB_CPU_AFFINITY },
	  .look = look_affinity,
	  .when = "processes are not bound to cores (note)" },
	{ .id = "garbage-collection",
	  .needs = FO_NEED_SHAPE | FO_NEED_DOMAIN,
	  .settings = 1,
	  .setting = { FO_JOB_GC_MANUAL },
	  .look = look_gc,
	  .when = "ranks on several nodes collect garbage at their own times" },
	{ 0 },
};
