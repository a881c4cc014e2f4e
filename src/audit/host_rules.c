/* Runs the rules over the hosts, and compares hosts with each other. */
#include "audit/host_int.h"

#include "base/fs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the whole ---- */

static void run(struct fo_look *k, const struct fo_host_rule *rule)
{
	for (; rule->id; rule++) {
		k->rule = rule->id;
		if (rule->look(k))
			k->a->checked++;
		else if (rule->what)
			fo_audit_not_known(k->a, rule->what, rule->tell);
	}
}

/* ---- hosts against each other ---- */

static const char *first_gpu(const struct fo_host *h, const struct fo_host_fact **at)
{
	*at = h->gpus ? fo_gpu_told(&h->gpu[0], FO_GPU_NAME) : NULL;
	return *at ? (*at)->text : NULL;
}

static const char *driver(const struct fo_host *h, const struct fo_host_fact **at)
{
	*at = fo_host_told(h, FO_HOST_DRIVER);
	return *at ? (*at)->text : NULL;
}

static const char *nccl(const struct fo_host *h, const struct fo_host_fact **at)
{
	*at = fo_host_told(h, FO_HOST_NCCL);
	return *at ? (*at)->text : NULL;
}

static const char *gpu_count(const struct fo_host *h, const struct fo_host_fact **at)
{
	*at = fo_host_told(h, FO_HOST_GPUS);
	return *at ? (*at)->text : NULL;
}

static const struct {
	const char *id, *of, *why;
	const char *(*value)(const struct fo_host *h, const struct fo_host_fact **at);
	enum fo_audit_level level;
} same[] = {
	{ "hosts-gpu", "GPUs", "a step ends when the slowest GPU is done", first_gpu, FO_AUDIT_SERIOUS },
	{ "hosts-gpu-count", "numbers of GPUs",
	  "a GPU that is not there has fallen off the bus: see the kernel log (Xid 79)", gpu_count, FO_AUDIT_SERIOUS },
	{ "hosts-driver", "drivers",
	  "hosts of one job should run one tested driver; timings and limits differ by release", driver,
	  FO_AUDIT_ADVICE },
	{ "hosts-nccl", "NCCL versions", "ranks of different NCCL versions may choose different algorithms and hang",
	  nccl, FO_AUDIT_SERIOUS },
};

static void compare_hosts(struct fo_audit *a, const struct fo_host_facts *f)
{
	for (size_t s = 0; s < sizeof same / sizeof *same; s++) {
		const struct fo_host_fact *at, *first = NULL;
		const char *one = NULL;
		size_t told = 0;
		for (size_t i = 0; i < f->hosts; i++) {
			const char *v = same[s].value(&f->host[i], &at);
			told += v != NULL;
			if (!v || !one) {
				one = one ? one : v;
				first = first ? first : at;
				continue;
			}
			if (!strcmp(v, one))
				continue;
			fo_audit_add(a, (struct fo_audit_finding){
						.id = same[s].id,
						.level = same[s].level,
						.title = fo_audit_text(a, "Hosts have different %s", same[s].of),
						.now = fo_audit_text(a, "%s, and %s on %s", one, v, f->host[i].name),
						.proposed = "one for all hosts of a job",
						.why = same[s].why,
						.evidence = fo_audit_text(a, "%s, %s", fo_look_where(a, first),
									  fo_look_where(a, at)) });
			break;
		}
		a->checked += told > 1;
	}
}

/* Variables of NCCL that say which adapters, interfaces, files or logs: these may differ by host. */
static bool local(const char *name)
{
	static const char *const word[] = { "IFNAME", "HCA", "DEBUG", "FILE", "HOSTID", "ADDR", "TIMEOUT" };
	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		if (strstr(name, word[i]))
			return true;
	return strncmp(name, "NCCL_", 5);
}

static bool told_environment(const struct fo_host *h) { return h->kinds >> FO_KIND_ENV & 1 && h->variables; }

/* The first variable of a that b has otherwise or not at all. */
static void compare_variables(struct fo_audit *a, const struct fo_host *x, const struct fo_host *y)
{
	for (size_t i = 0; i < x->variables; i++) {
		const struct fo_host_variable *v = &x->variable[i];
		const struct fo_host_fact *o = fo_host_variable(y, v->name);
		if (local(v->name) || (o && !strcmp(o->text, v->value.text)))
			continue;
		fo_audit_add(a,
			     (struct fo_audit_finding){
				     .id = "hosts-variables",
				     .level = FO_AUDIT_ADVICE,
				     .title = fo_audit_text(a, "Hosts have different %s", v->name),
				     .setting = v->name,
				     .now = fo_audit_text(a, "%s on %s, %s on %s", v->value.text, x->name,
							  o ? o->text : "not set", y->name),
				     .proposed = "one value for all ranks of a job",
				     .why = "ranks that choose different algorithms or networks hang, or all take the "
					    "slower way",
				     .evidence = fo_look_where(a, &v->value),
				     .source = "NCCL user guide 2.30, environment variables" });
	}
}

static void compare_environments(struct fo_audit *a, const struct fo_host_facts *f)
{
	const struct fo_host *first = NULL;
	for (size_t i = 0; i < f->hosts; i++) {
		const struct fo_host *h = &f->host[i];
		if (!told_environment(h))
			continue;
		size_t before = a->count;
		if (first) {
			compare_variables(a, first, h);
			if (a->count == before)
				compare_variables(a, h, first);
			a->checked++;
		}
		if (a->count > before)
			return; /* one pair shows it */
		first = first ? first : h;
	}
}

void fo_audit_host(struct fo_audit *a, const struct fo_host_facts *facts)
{
	static const struct fo_host_rule *const set[] = { fo_host_rules_gpu, fo_host_rules_fabric, fo_host_rules_nccl,
							  fo_host_rules_system, fo_host_rules_versions };
	for (int64_t i = 0; i < facts->reads; i++)
		fo_audit_read(a, "%s", facts->read[i]);
	for (int64_t i = 0; i < facts->not_reads; i++)
		fo_audit_read(a, "not read: %s", facts->not_read[i]);
	for (size_t i = 0; i < facts->hosts; i++) {
		struct fo_look k = { .a = a, .facts = facts, .host = &facts->host[i] };
		for (size_t s = 0; s < sizeof set / sizeof *set; s++)
			run(&k, set[s]);
	}
	compare_hosts(a, facts);
	compare_environments(a, facts);
}

fo_status fo_audit_host_from(struct fo_audit *a, const char *files)
{
	struct fo_host_facts facts = { 0 };
	fo_status st = FO_OK;
	struct fo_arena names = { 0 };
	for (const char *p = files; *p && st == FO_OK;) {
		size_t n = strcspn(p, ",");
		char *path = fo_arena_printf(&names, "%.*s", (int)n, p);
		char *home = fo_fs_home_path(&names, path);
		if (n)
			st = fo_host_read_file(&facts, home ? home : path);
		p += n + (p[n] == ',');
	}
	if (st == FO_OK && !facts.reads && !facts.not_reads)
		st = fo_fail(FO_EARG, "no file is named: got '%s'", files);
	if (st == FO_OK && !facts.reads)
		st = fo_hint(fo_fail(FO_EFORMAT, "no file tells anything about a host: %s", facts.not_read[0]),
			     "give what nvidia-smi -q, nvidia-smi topo -m, env, ibstat, lscpu or NCCL's log printed");
	if (st == FO_OK)
		fo_audit_host(a, &facts);
	fo_host_facts_fini(&facts);
	fo_arena_fini(&names);
	return st;
}

void fo_audit_host_here(struct fo_audit *a)
{
	struct fo_host_facts facts = { 0 };
	bool alone = !a->reads; /* no file was read before: what this machine tells is all */
	fo_host_read_here(&facts, "");
	fo_audit_host(a, &facts);
	size_t gpus = 0;
	for (size_t i = 0; i < facts.hosts; i++)
		gpus += facts.host[i].gpus;
	if (alone && !gpus) {
		a->little_why = "no GPU on this machine";
		a->little = "--from FOLDER of a node, or a CONFIG";
	}
	fo_host_facts_fini(&facts);
}
