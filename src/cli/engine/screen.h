/* The screen of `flatout train` and `flatout demo` while they run and when they are done: a subscriber of the run's
 * events. */
#ifndef FO_CLI_ENGINE_SCREEN_H
#define FO_CLI_ENGINE_SCREEN_H

#include "cli/cli.h"
#include "train/train.h"

struct fo_screen {
	FILE *out; /* where progress goes: standard output, or standard error beside --json */
	bool live; /* a terminal: one line is rewritten */
	int64_t log_every;
	const char *dir;      /* the run's; NULL: none */
	bool open_line;       /* a live line stands unfinished */
	int64_t last_ns;      /* when the live line was last drawn */
	char last_what[64];   /* preparation announced last (plain output) */
	int64_t what_ns;      /* when that began */
	double what_done;     /* how much of it was done then */
	bool paced;           /* operations take given times: there is no loss */
	bool plan_is_all;     /* a dry run: the plan is the result, and waits for its reader */
	struct fo_json *plan; /* not NULL: gets the plan as members of the open object */
};
void fo_screen_init(struct fo_screen *s, const struct fo_run *r, bool json);
/* Fills the hooks; ctx becomes s. */
void fo_screen_hooks(struct fo_screen *s, struct fo_train_hooks *h);
void fo_screen_end_line(struct fo_screen *s);
/* The progress hook alone: a line rewritten on a terminal, elsewhere one every ten seconds, with the speed and the time
 * left. */
void fo_screen_progress(void *ctx, const char *what, const char *unit, double done, double total);
/* The sample, then the last screen: at most 80 columns and 24 lines. */
void fo_screen_summary(struct fo_screen *s, const struct fo_train_result *r);
/* The same as members of the open object. */
void fo_screen_summary_json(const struct fo_train_result *r, struct fo_json *j);
/* {"started":..., "flatout":..., "options":...}: the command line's part of run.json; heap. */
char *fo_screen_run_json(struct fo_opt_set *s);

/* Ctrl-C, SIGTERM and, unless it was ignored, SIGHUP set this; a second one of the first two ends the process the hard
 * way. */
extern volatile sig_atomic_t fo_stop_requested;
void fo_catch_signals(void);

/* Runs the self-check and prints one line on f. FO_ENUMERIC when a check failed. threads 0: all this process may use;
 * device: as train.device. */
FO_CHECKED fo_status fo_cli_verify_at_start(bool brief, int threads, const char *device, FILE *f);

/* Opens the model that argv[1] names; precision: "stored", "fp32" or "bf16" as an index. */
struct fo_pretrained;
FO_CHECKED fo_status fo_cli_pretrained(const struct fo_cli_call *call, int precision, struct fo_pretrained *out);

/* fo_device_open; a device that is there and cannot be used is warned about. */
struct fo_cuda;
FO_CHECKED fo_status fo_cli_device_open(const char *text, struct fo_cuda **out);

#endif
