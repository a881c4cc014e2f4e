/* The commands, and the one place that reports errors and ends the process. */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "cli/cli.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

const struct fo_command *const fo_commands[] = {
	&fo_cmd_flops,
	&fo_cmd_mfu,
	&fo_cmd_devices,
	&fo_cmd_machine,
	&fo_cmd_calibrate,
#ifndef FO_NO_ENGINE
	&fo_cmd_verify,
	&fo_cmd_train,
	&fo_cmd_demo,
	&fo_cmd_data,
	&fo_cmd_data_prepare,
	&fo_cmd_data_train_tokenizer,
	&fo_cmd_data_inspect,
	&fo_cmd_generate,
	&fo_cmd_eval,
	&fo_cmd_launch,
#endif
	&fo_cmd_init,
	&fo_cmd_config,
	&fo_cmd_ops,
	&fo_cmd_program,
	&fo_cmd_passes,
	&fo_cmd_predict,
	&fo_cmd_predict_cluster,
	&fo_cmd_plan,
	&fo_cmd_plan_machine,
	&fo_cmd_scale,
	&fo_cmd_status,
	&fo_cmd_report,
	&fo_cmd_compare,
	&fo_cmd_compare_clusters,
	&fo_cmd_ladder,
	&fo_cmd_ladder_plan,
	&fo_cmd_health,
	&fo_cmd_diagnose,
	&fo_cmd_audit,
	&fo_cmd_export,
	&fo_cmd_price,
	&fo_cmd_score,
	NULL,
};

/* A descriptor 0, 1 or 2 that is closed would be given to the next file opened, and our messages would go into that
 * file. /dev/null opened for reading takes its place: writing to it still fails, which is noticed at the end. */
static void occupy_standard_files(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			_exit(3);
}

/* Text on standard error is for people who may not be reading: a pipe that is full, a terminal that is stopped. Nothing
 * waits for them, least of all a training run that has something to save. Opened anew, because a descriptor's flags
 * belong to all who share it. */
static void never_wait_for_stderr(void)
{
	struct stat info;
	if (fstat(STDERR_FILENO, &info) || !(S_ISFIFO(info.st_mode) || isatty(STDERR_FILENO)))
		return;
	int own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (own < 0)
		return; /* not ours to open: it stays as it is */
	dup2(own, STDERR_FILENO);
	close(own);
}

/* Gives a slow reader a second to make room for the last messages. */
static void give_stderr_a_second(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	while (poll(&p, 1, 1000) < 0 && errno == EINTR)
		;
}

/* The stack of every thread, the first one too: as much as Linux gives by default. What libraries need of it (OpenMP,
 * regular expressions, compression) is not in our hands. */
#define STACK_BYTES ((rlim_t)8 << 20)

/* Makes up for a small limit on stacks (ulimit -s): it is raised as far as it may be, and threads, which it does not
 * bind, do not take their size from it. true: the first thread's stays too small. */
static bool stack_is_small(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= STACK_BYTES)
		return false;
	limit.rlim_cur = limit.rlim_max < STACK_BYTES ? limit.rlim_max : STACK_BYTES;
	setrlimit(RLIMIT_STACK, &limit);
#ifdef __GLIBC__
	pthread_attr_t attr;
	if (!pthread_attr_init(&attr)) {
		if (!pthread_attr_setstacksize(&attr, STACK_BYTES))
			pthread_setattr_default_np(&attr);
		pthread_attr_destroy(&attr);
	}
#endif
	return limit.rlim_cur < STACK_BYTES;
}

/* Is `flag` among the arguments before "--"? */
static bool has_flag(int argc, char **argv, const char *flag)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], flag))
			return true;
	return false;
}

/* Prints the error's lines with everything that could upset a terminal made visible. */
static void print_error_lines(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		struct fo_str line = { 0 };
		fo_str_append(&line, text, n);
		fprintf(stderr, "flatout: %s\n", fo_cli_seen(line.data));
		fo_str_fini(&line);
		text += n + (text[n] == '\n');
	}
}

static void report(fo_status st, bool json)
{
	const char *text = *fo_err_text() ? fo_err_text() : "the command failed without saying why";
	if (json) {
		struct fo_str out = { 0 };
		struct fo_json j;
		fo_json_begin(&j, &out, false);
		fo_json_object(&j, NULL);
		fo_json_int(&j, "schema", 1);
		fo_json_record(&j, "error", FO_TEXT("kind", fo_status_name(st)), FO_TEXT("text", text),
			       FO_TEXT("hint", *fo_err_hint() ? fo_err_hint() : NULL));
		fo_json_close(&j);
		printf("%s\n", out.data);
		fo_str_fini(&out);
	}
	fflush(stdout);
	give_stderr_a_second();
	print_error_lines(text);
	if (*fo_err_hint())
		fprintf(stderr, "hint: %s\n", fo_cli_seen(fo_err_hint()));
	if (st == FO_EBUG)
		fprintf(stderr, "hint: this is a mistake in flatout itself; please report it with the command line\n");
}

/* Output that was lost is an error even when the command succeeded. A reader that went away (`flatout ops | head -1`)
 * did so on purpose: no sentence for it, but the exit code tells. */
static int close_output(int code)
{
	errno = 0;
	bool lost = fflush(stdout) != 0 || ferror(stdout);
	int reason = errno;
	if (!lost)
		return code;
	/* A write that failed before the last flush left no reason; the pipe still knows that nobody reads. */
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
	if (!reason && poll(&out, 1, 0) == 1 && out.revents & POLLERR)
		reason = EPIPE;
	if (reason != EPIPE)
		fprintf(stderr, "flatout: cannot write to standard output: %s\n",
			reason ? strerror(reason) : "output was lost");
	return code ? code : 3;
}

static fo_status unknown_command(const char *name)
{
	const char *nearest = NULL;
	fo_command_find(fo_commands, name, &nearest);
	const char *shown = fo_cli_seen(name);
#ifdef FO_NO_ENGINE
	static const char *const left_out[] = { "train", "demo", "data", "generate", "eval", "verify" };
	for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
		if (!strcmp(name, left_out[i]))
			return fo_hint(fo_fail(FO_EUNSUPPORTED,
					       "'%s' is not in this program: it was built without the training engine",
					       name),
				       "'make' in the source tree builds the whole; this one knows but does not train");
#endif
	if (nearest)
		fo_fail(FO_EARG, "unknown command '%s'; nearest is '%s'", shown, nearest);
	else
		fo_fail(FO_EARG, "unknown command '%s'", shown);
	return fo_hint(FO_EARG, "'flatout --help' lists the commands");
}

/* The command of the longest name that the first words spell: "data prepare" goes before "data". */
static const struct fo_command *find_words(int argc, char **argv, int *words)
{
	char both[64];
	const struct fo_command *c = NULL;
	if (argc > 1 && snprintf(both, sizeof both, "%s %s", argv[0], argv[1]) < (int)sizeof both)
		c = fo_command_find(fo_commands, both, NULL);
	*words = c ? 2 : 1;
	return c ? c : fo_command_find(fo_commands, argv[0], NULL);
}

/* Is one of these flags, parted by blanks, among the arguments before "--", with or without a value behind '='? */
static bool has_one_of(int argc, char **argv, const char *flags)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		for (const char *f = flags; *f;) {
			size_t n = strcspn(f, " ");
			if (!strncmp(argv[i], f, n) && (!argv[i][n] || argv[i][n] == '='))
				return true;
			f += n + (f[n] == ' ');
		}
	return false;
}

/* `flatout help [CMD]` and `flatout man [CMD]`. */
static fo_status page(int argc, char **argv, bool man, struct fo_str *out)
{
	if (argc < 3) {
		(man ? fo_man_overview : fo_help_overview)(fo_commands, out);
		return FO_OK;
	}
	int words;
	const struct fo_command *c = find_words(argc - 2, argv + 2, &words);
	if (!c)
		return unknown_command(argv[2]);
	if (argc > 2 + words)
		return fo_fail(FO_EARG, "'flatout %s' takes one command, got %d words too many", argv[1],
			       argc - 2 - words);
	(man ? fo_man_command : fo_help_command)(c, out);
	return FO_OK;
}

/* Reads options from flags, variables and, of a command that takes a run, its file; reports all mistakes at once. */
static fo_status read_options(const struct fo_command *c, struct fo_opt_set *s, void *in, int *argc, char **argv)
{
	fo_cli_options_read(c, s, in, argc, argv);
	/* The file comes last only because a flag may stand before its name: precedence does not follow this order. */
	if (c->prepare)
		FO_TRY(c->prepare(s, *argc, argv));
	else if (c->own && *argc > 1)
		FO_TRY(fo_cli_options_yaml(c, s, argv[1]));
	FO_TRY(fo_cli_options_finish(c, s));
	return fo_cli_no_more_args(c, *argc, argv, c->most);
}

/* Does --json ask for what the command leaves in call->json? */
static bool wants_json(const struct fo_opt_set *s)
{
	for (int i = 0; i < s->total; i++)
		if (fo_opt_row(s, i)->output == FO_OUTPUT_JSON && fo_cli_text_at(s, i))
			return true;
	return false;
}

/* A command that printed its result as JSON prints no second object: the error is on standard error. */
static bool json_printed;
/* A rank of a job whose first rank says why it ended. */
static bool silent;

static fo_status run_command(const struct fo_command *c, int argc, char **argv)
{
	fo_status served;
#ifndef FO_NO_ENGINE
	fo_status one = fo_cli_one_process(c, &silent);
	if (one != FO_OK) /* one rank says so, and MPI does not end it before */
		return silent ? FO_OK : one;
#endif
	if (c->serve && c->serve(&served, &silent))
		return served;
	if (c->run)
		return c->run(argc, argv);
	struct fo_opt_set s;
	struct fo_doc doc = { 0 };
	struct fo_str out = { 0 };
	struct fo_json json;
	void *in = fo_xmalloc(c->size);
	fo_status st = read_options(c, &s, in, &argc, argv);
	struct fo_cli_call call = { c, in, &s, argc, argv, &doc, NULL };
	if (st == FO_OK && wants_json(&s)) {
		call.json = &json;
		fo_json_begin(&json, &out, true);
		fo_json_object(&json, NULL);
		fo_json_int(&json, "schema", 1);
	}
	if (st == FO_OK)
		st = c->act(&call);
	json_printed = fo_cli_show(&call);
	fo_opt_fini(&s);
	free(in);
	return st;
}

static fo_status dispatch(int argc, char **argv, struct fo_str *out)
{
	if (argc < 2) {
		fo_help_tasks(fo_commands, out);
		return FO_OK;
	}
	const char *name = argv[1];
	if (!strcmp(name, "help") || !strcmp(name, "man"))
		return page(argc, argv, name[0] == 'm', out);
	if (!strcmp(name, "completion")) {
		if (argc != 3)
			return fo_hint(fo_fail(FO_EARG, "'flatout completion' takes one shell, got %d", argc - 2),
				       "usage: flatout completion bash|zsh|fish");
		return fo_completion(fo_commands, argv[2], out);
	}
	int words = 0;
	const struct fo_command *c = name[0] == '-' ? NULL : find_words(argc - 1, argv + 1, &words);
	if (c && c->instead && has_one_of(argc - words, argv + words, c->instead_of))
		c = c->instead;
	if (c) {
		if (has_flag(argc - words, argv + words, "--help") || has_flag(argc - words, argv + words, "-h")) {
			fo_help_command(c, out);
			return FO_OK;
		}
		return run_command(c, argc - words, argv + words);
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
		fo_help_overview(fo_commands, out);
		return FO_OK;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-v")) {
		fo_version_text(out, has_flag(argc, argv, "--json"));
		return FO_OK;
	}
	if (name[0] == '-') {
		fo_fail(FO_EARG, "unknown option '%s' in front of a command", fo_cli_seen(name));
		return fo_hint(FO_EARG, "usage: flatout COMMAND [--OPTION=VALUE ...]");
	}
	return unknown_command(name);
}

struct arguments {
	int argc;
	char **argv;
	int code;
};

static void *run_program(void *arguments)
{
	struct arguments *a = arguments;
	struct fo_str out = { 0 };
	int argc = a->argc;
	char **argv = a->argv;
	bool json = has_flag(argc, argv, "--json") ||
		    has_flag(argc, argv, "--json=-"); /* asked now: commands take their options out of argv */
	fo_status st = dispatch(argc, argv, &out);
	if (out.len)
		fwrite(out.data, 1, out.len, stdout);
	fo_str_fini(&out);
	struct fo_err why;
	fo_err_save(&why, st);
	fo_status written = fo_cli_output_end();
	if (st != FO_OK)
		fo_err_raise(&why);
	else
		st = written;
	if (st != FO_OK && !silent && (st != FO_ENUMERIC || *fo_err_text())) /* a finding is no error (fo_cli_found) */
		report(st, json && !json_printed);
	a->code = close_output(fo_status_exit_code(st));
	return NULL;
}

/* Runs the program on a thread with enough stack; false: no such thread can be made. */
static bool run_on_thread(struct arguments *a)
{
	pthread_attr_t attr;
	pthread_t thread;
	if (pthread_attr_init(&attr))
		return false;
	bool begun = !pthread_attr_setstacksize(&attr, STACK_BYTES) && !pthread_create(&thread, &attr, run_program, a);
	pthread_attr_destroy(&attr);
	return begun && !pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	struct arguments a = { argc, argv, 4 };
	occupy_standard_files();
	never_wait_for_stderr();
	bool small = stack_is_small();
#ifndef FO_NO_ENGINE
	const struct fo_command *command = argc > 1 ? fo_command_find(fo_commands, argv[1], NULL) : NULL;
	if (command && command->spin)
		fo_cli_tune_threads(argv, command->spin);
#endif
	signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files (ulimit -f) is an error of writing, not the end */
	signal(SIGPIPE, SIG_IGN); /* a lost reader must not kill a training run; close_output() notices it */
	if (!small || !run_on_thread(&a))
		run_program(&a);
	return a.code;
}
