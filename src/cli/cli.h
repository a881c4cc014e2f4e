/* Subcommands. Each is a row of fo_commands[] in main.c; only this folder prints or exits. */
#ifndef FO_CLI_CLI_H
#define FO_CLI_CLI_H

#include "base/err.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/str.h"
#include "draw/doc.h"

#include <stdio.h>

#define FO_SPIN_TRAINING "30000"
#define FO_SPIN_NONE "0" /* the self-check has more threads than processors, which sleep at once */

/* A command that is carried out: its options are read and checked. */
struct fo_cli_call {
	const struct fo_command *command;
	const void *in;             /* the struct that the command's options fill */
	struct fo_opt_set *options; /* says where each option's value came from */
	int argc;                   /* positional arguments: argv[1] to argv[argc - 1] */
	char **argv;
	struct fo_doc *doc;   /* printed when the command is done, also after an error (fo_cli_show) */
	struct fo_json *json; /* the open object that --json prints then, unless it stays empty; NULL: text is wanted */
};

/* The last rows of a command's options; the struct S has `const char *json` and `bool force`. */
#define FO_CLI_OUTPUT_ROWS(S, group, help) \
	FO_OPT_JSON(S, json, group ".json", help), FO_OPT_FORCE(S, force, group ".force"), FO_OPT_END

enum { FO_CLI_ANY = 1 << 30 };
struct fo_command {
	const char *name;          /* one word, or the two of a part: "data prepare" */
	const char *group;         /* "measure", "train", "improve", "diagnose", "plan" */
	const char *usage;         /* "flatout flops --model M --seq S [--json]" */
	const char *summary;       /* one line */
	const char *text;          /* what --help says below the options: description and examples */
	const struct fo_opt *opts; /* NULL: none; of a command that takes a run, the run's options */
	const struct fo_opt *own;  /* of a command that takes a run: its own options, set by flags alone */
	/* Most commands: main reads the options into a struct of `size` bytes, calls `act` and prints what it leaves.
	 * FO_EARG before that, where there are more than `most` positional arguments. */
	fo_status (*act)(const struct fo_cli_call *call);
	size_t size;
	int most; /* or FO_CLI_ANY */
	/* Sets further options before all are checked; NULL: of a command that takes a run, argv[1] is its run file. */
	fo_status (*prepare)(struct fo_opt_set *s, int argc, char **argv);
	/* Called before its options are read. True: this process is a rank of a job, but not the first, and has
	 * done what that one wanted; *st is its end. *silent: the first rank says why. NULL: there are no such
	 * jobs. */
	bool (*serve)(fo_status *st, bool *silent);
	bool processes; /* does its work once, however many processes a launcher starts; others refuse to be several */
	fo_status (*run)(int argc, char **argv); /* instead of act; argv[0] is the command's name */
	enum fo_output writes; /* of a command that takes a run: what its run.dir becomes; FO_OUTPUT_NONE: the run's
				* outputs are not written */
	bool json_beside; /* writes the file of --json=PATH itself, beside its text; else what it prints goes there */
	/* Another command of the same first word, taken where one of these flags (parted by blanks, with their dashes)
	 * is given: its options are its own. NULL: there is none. */
	const struct fo_command *instead;
	const char *instead_of;
	const char *spin; /* turns that a waiting OpenMP thread spins before it sleeps (engine/threads.c); NULL: the
			   * library's default */
};
extern const struct fo_command *const fo_commands[]; /* NULL-terminated */

extern const struct fo_command fo_cmd_flops, fo_cmd_mfu, fo_cmd_devices, fo_cmd_ops, fo_cmd_program, fo_cmd_passes,
	fo_cmd_predict, fo_cmd_predict_cluster, fo_cmd_plan, fo_cmd_plan_machine, fo_cmd_scale, fo_cmd_init,
	fo_cmd_config, fo_cmd_calibrate, fo_cmd_machine, fo_cmd_export, fo_cmd_compare, fo_cmd_compare_clusters,
	fo_cmd_report, fo_cmd_ladder, fo_cmd_ladder_plan, fo_cmd_diagnose, fo_cmd_price, fo_cmd_score, fo_cmd_health,
	fo_cmd_audit, fo_cmd_status;
#ifndef FO_NO_ENGINE
extern const struct fo_command fo_cmd_verify, fo_cmd_train, fo_cmd_demo, fo_cmd_data, fo_cmd_data_prepare,
	fo_cmd_data_train_tokenizer, fo_cmd_data_inspect, fo_cmd_generate, fo_cmd_eval, fo_cmd_launch;
/* Sets the spin of OpenMP's threads unless the user chose one. The process starts itself again for that, so main calls
 * it before anything else is done. */
void fo_cli_tune_threads(char **argv, const char *turns);
/* FO_EARG: a launcher started several processes, and the command's row has no `processes`. *silent: it is another one
 * that says so. */
FO_CHECKED fo_status fo_cli_one_process(const struct fo_command *c, bool *silent);
#endif
struct fo_catalogue;
struct fo_program;
struct fo_cli_calibration {
	int threads;      /* 0: all */
	int ranks;        /* above 1: calls between so many are measured too */
	bool links_alone; /* nothing but these */
	double seconds;   /* 0: as long as it takes */
	bool quick, live; /* live: progress may be drawn */
	const struct fo_program
		*program; /* NULL: shapes in general; else what this run needs, with attention of these pairs */
	double pairs;     /* per micro-batch; < 0: unbroken rows */
};
#ifndef FO_NO_ENGINE
/* flatout devices --local (engine/devices.c): fo_cli_found() where there is no device to train on. */
FO_CHECKED fo_status fo_cli_devices_local(const struct fo_cli_call *call, const struct fo_catalogue *c);
/* Measures this machine and writes the profile (engine/calibrate.c); progress on standard error. */
FO_CHECKED fo_status fo_cli_calibrate(const char *path, const struct fo_cli_calibration *c);
/* Is this process one of several that mpirun started? *rank: which. */
FO_CHECKED fo_status fo_cli_launched(bool *many, int *rank);
/* Calls between the processes that mpirun started: each of them calls it, rank 0 writes. */
FO_CHECKED fo_status fo_cli_calibrate_processes(const char *path, const struct fo_cli_calibration *c);
#endif

/* The command whose --help lists the options of a run; other commands that take a run refer to it. */
#ifdef FO_NO_ENGINE
#define FO_RUN_OPTIONS_COMMAND "config"
#else
#define FO_RUN_OPTIONS_COMMAND "train"
#endif

/* Reads flags (and FLATOUT_* variables) of one command into target; positional arguments stay in argv. Handles nothing
 * but options: --help was served by main. Initialises s; the caller ends it with fo_opt_fini() also after an error. */
void fo_cli_options_read(const struct fo_command *c, struct fo_opt_set *s, void *target, int *argc, char **argv);
/* The text of row i of s; NULL: none was given. */
const char *fo_cli_text_at(const struct fo_opt_set *s, int i);
/* The last check before a command works: every output that s names may be written, and --json=PATH begins to take what
 * is printed. Part of fo_cli_options_finish. FO_EARG, FO_EIO. */
FO_CHECKED fo_status fo_cli_output_begin(const struct fo_command *c, const struct fo_opt_set *s, enum fo_output writes);
/* Ends what --json=PATH began: what was printed becomes the file, which stays away where nothing was. */
FO_CHECKED fo_status fo_cli_output_end(void);
/* All mistakes at once, of a run also those that span several keys (fo_run_check). */
FO_CHECKED fo_status fo_cli_options_finish(const struct fo_command *c, struct fo_opt_set *s);
/* Reads a run file only, between fo_cli_options_read and fo_cli_options_finish. */
FO_CHECKED fo_status fo_cli_options_yaml(const struct fo_command *c, struct fo_opt_set *s, const char *path);
/* FO_EARG naming the first argument too many, when there are more than `most` positional arguments behind argv[0]. */
FO_CHECKED fo_status fo_cli_no_more_args(const struct fo_command *c, int argc, char **argv, int most);

/* Help and manual pages; `list` is fo_commands. They append to out, and main prints. */
void fo_help_tasks(const struct fo_command *const *list, struct fo_str *out);    /* `flatout` alone */
void fo_help_overview(const struct fo_command *const *list, struct fo_str *out); /* `flatout --help` */
void fo_help_command(const struct fo_command *c, struct fo_str *out);            /* `flatout CMD --help` */
void fo_man_command(const struct fo_command *c, struct fo_str *out);             /* mdoc */
void fo_man_overview(const struct fo_command *const *list, struct fo_str *out);  /* mdoc of flatout(1) */
/* A completion script; shell is "bash", "zsh" or "fish", anything else FO_EARG. */
FO_CHECKED fo_status fo_completion(const struct fo_command *const *list, const char *shell, struct fo_str *out);
void fo_version_text(struct fo_str *out, bool json); /* `flatout --version` */
extern const char fo_version_number[];               /* "0.4.0" */
/* NULL when there is none of that name; *nearest (may be NULL) is then the most similar one or NULL. */
const struct fo_command *fo_command_find(const struct fo_command *const *list, const char *name, const char **nearest);

/* Writes the document as a page into the file of that name; "-": standard output. */
FO_CHECKED fo_status fo_cli_page(const struct fo_doc *d, const char *path);
/* "2 micro-batches x 2 rows x 32 tokens, bf16" */
struct fo_lowering;
const char *fo_cli_run_text(struct fo_doc *d, const struct fo_lowering *run);
/* stages.c: the stages of a pipeline, each with its planned memory: into d, or fields of an open object where j is not
 * NULL. Nothing for a run without stages. */
FO_CHECKED fo_status fo_cli_stages(const struct fo_program *first, struct fo_doc *d, struct fo_json *j);
/* program_meshes.c: what flatout program says with --meshes. */
struct fo_run;
FO_CHECKED fo_status fo_cli_meshes(const struct fo_cli_call *call, const struct fo_run *r, int ranks);
/* Prints and empties call->doc and call->json. main does so at the end, a command that does not return by itself.
 * Returns whether JSON was printed. */
bool fo_cli_show(const struct fo_cli_call *call);
/* MFU by each rule and HFU as members of the open object. */
struct fo_mfu;
void fo_cli_mfu_json(struct fo_json *j, const struct fo_mfu *f);
/* The whole text with what could upset a terminal made visible; good until the eighth call from here on this thread. */
FO_CHECKED const char *fo_cli_seen(const char *text);
/* Prints the document as text, as wide as the terminal allows. */
void fo_cli_print(FILE *f, const struct fo_doc *d);
/* Is f a terminal on which a line can be renewed? */
bool fo_cli_is_live(FILE *f);
/* Renews the line that a terminal shows with as many of text's words as fit: one that wraps could not be renewed. */
void fo_cli_live(FILE *f, const char *text);
size_t fo_cli_fit(const char *text,
		  size_t width); /* bytes of the whole words that fit; of a single long one what fits */
struct fo_program;
struct fo_run;
/* A program that was read (program.file) says everything that an option could: FO_EARG unless those that were given in
 * s say the same (program.c). */
FO_CHECKED fo_status fo_cli_same_program(const struct fo_program *p, const struct fo_opt_set *s,
					 const struct fo_run *r);
/* Ends a command with exit code 1 and without an error: what it printed says why. */
static inline fo_status fo_cli_found(void)
{
	fo_err_clear();
	return FO_ENUMERIC;
}
/* FO_EARG for options of which only one can count. */
#define fo_cli_contradict(...) fo_hint(fo_fail(FO_EARG, __VA_ARGS__), "leave one of them out")

#endif
