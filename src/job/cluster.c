/* Reads which machines a job runs on: from a short text, from a file, or from the job's own settings. */
#define _GNU_SOURCE /* strcasestr */
#include "job/cluster.h"

#include "base/opt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { NODE = 8 };           /* devices of the usual server */
#define MOST_DEVICES 1000000 /* more than any machine has; a larger number is a slip */
/* Where nobody states the network, the usual adapter of the device is the high end. Half of it is the low end: clouds
 * rent servers with half of the adapters (August 2026). */
#define NET_LEAST 0.5
/* More than this times the catalogue's memory or rate of a device is a slip of units: cards that somebody rebuilt have
 * twice as much. */
#define MOST_TIMES 4
#define EXAMPLES "'16xHGX-H100', '128xA100', '32x8xH100', '4xGB200-NVL72' or a YAML file with 'device:' and 'nodes:'"

void fo_cluster_of_job(const struct fo_job *job, struct fo_cluster *out)
{
	double devices = fo_job_number(job, FO_JOB_DEVICES), nodes = fo_job_number(job, FO_JOB_NODES),
	       per_node = fo_job_number(job, FO_JOB_PER_NODE);
	if (isnan(devices))
		devices = nodes * per_node;
	if (isnan(per_node))
		per_node = devices / nodes;
	if (isnan(nodes))
		nodes = devices / per_node;
	*out = (struct fo_cluster){ .devices = devices,
				    .per_node = per_node,
				    .nodes = nodes,
				    .node_gb_s = fo_range(NAN),
				    .net_gb_s = fo_range(NAN),
				    .from = "the configuration" };
}

/* What the catalogue knows of the device's links. */
static void links(struct fo_cluster *c)
{
	c->node_gb_s = fo_range(c->device->scaleup_gb_s);
	double net = c->device->scaleout_gbit_s / 8;
	c->net_gb_s = (struct fo_range){ NET_LEAST * net, net };
	c->net_assumed = true;
}

/* Devices of a node where only their number is stated. A rack-wide domain may be used in part: of 512 GB200, domains of
 * 64 rather than 72. */
static double node_of(const struct fo_device *d, double devices)
{
	double domain = d->scaleup_devices;
	if (isnan(domain) || domain <= NODE)
		return fmin(devices, NODE);
	double n = fmin(devices, domain);
	while (fmod(devices, n) != 0)
		n--;
	return n;
}

static fo_status divide(struct fo_cluster *c, const char *text)
{
	c->nodes = c->devices / c->per_node;
	if (c->nodes == floor(c->nodes))
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "the cluster '%s' has %.15g device%s, which %s not fill nodes of %.15g", text,
			       c->devices, fo_plural(c->devices), fo_word(c->devices, "does", "do"), c->per_node),
		       "'NODESxDEVICESx%s' says how many devices each node has", c->device->name);
}

/* Clusters that cannot be: of several devices, of none. */
static fo_status refuse_kind(const char *text)
{
	const char *part = strpbrk(text, "+,;&");
	if (part && part > text && part[1])
		return fo_hint(fo_fail(FO_EARG,
				       "the cluster '%s' mixes devices, and a step waits for the slowest of them: no "
				       "prediction here is of such",
				       text),
			       "give one kind: '%.*s', and the other in a call of its own", (int)(part - text), text);
	char *end;
	if (*text == '0' && strtoul(text, &end, 10) == 0 && (*end == 'x' || *end == 'X' || *end == '*'))
		return fo_hint(fo_fail(FO_EARG, "the cluster '%s' has no device", text), "'1x%s' has one", end + 1);
	return FO_OK;
}

/* ---- a file ---- */

struct file {
	const char *device, *net, *fabric;
	int64_t nodes, per_node, devices;
	double memory_gb, memory_tb_s;
};
static const struct fo_opt file_rows[] = {
	FO_OPT_TEXT(struct file, device, "device", "NAME", NULL, "device, as 'flatout devices' has it"),
	FO_OPT_INT(struct file, nodes, "nodes", "N", "0", 0, MOST_DEVICES, "", "nodes"),
	FO_OPT_INT(struct file, per_node, "per_node", "N", "0", 0, MOST_DEVICES, "", "devices of a node"),
	FO_OPT_INT(struct file, devices, "devices", "N", "0", 0, MOST_DEVICES, "", "devices of all nodes"),
	FO_OPT_TEXT(struct file, net, "net_gbit", "GBIT", NULL,
		    "network of a device, Gbit/s and direction, or LOW..HIGH"),
	FO_OPT_TEXT(struct file, fabric, "fabric", "NAME", NULL, "InfiniBand, Ethernet, RoCE, EFA or TCP"),
	FO_OPT_REAL(struct file, memory_gb, "memory_gb", "GB", "0", 0, 1e5, "GB", "memory of a device"),
	FO_OPT_REAL(struct file, memory_tb_s, "memory_tb_s", "TB/S", "0", 0, 1e3, "TB/s", "bandwidth of that memory"),
	FO_OPT_END
};

/* Zeros that a file states: as a default they mean "not stated". */
static fo_status check_zeros(const struct fo_opt_set *s, const struct file *f, const char *path)
{
	const struct {
		const char *key;
		bool zero;
	} of[] = { { "nodes", f->nodes == 0 },
		   { "per_node", f->per_node == 0 },
		   { "devices", f->devices == 0 },
		   { "memory_gb", f->memory_gb == 0 },
		   { "memory_tb_s", f->memory_tb_s == 0 } };
	for (int i = 0; i < s->count; i++)
		for (size_t k = 0; k < sizeof of / sizeof *of; k++)
			if (of[k].zero && !strcmp(s->rows[i].key, of[k].key) && s->origin[i].from != FO_ORIGIN_DEFAULT)
				return fo_hint(
					fo_fail(FO_EARG, "'%s': %s is 0, and no cluster has none", path, of[k].key),
					"leave it out for the usual value");
	return FO_OK;
}

static fo_status file_numbers(const struct file *f, const char *path, struct fo_cluster *c)
{
	if (f->nodes > 0 && f->per_node > 0) {
		c->devices = (double)f->nodes * (double)f->per_node;
		c->per_node = (double)f->per_node;
		if (f->devices > 0 && (double)f->devices != c->devices)
			return fo_fail(FO_EARG, "'%s': %lld devices are not %lld nodes of %lld", path,
				       (long long)f->devices, (long long)f->nodes, (long long)f->per_node);
	} else if (f->devices > 0) {
		c->devices = (double)f->devices;
		c->per_node = node_of(c->device, c->devices);
		if (f->per_node > 0)
			c->per_node = (double)f->per_node;
		if (f->nodes > 0)
			c->per_node = c->devices / (double)f->nodes;
	} else if (f->nodes > 0) {
		c->per_node = isnan(c->device->scaleup_devices) ? NODE : fmax(NODE, c->device->scaleup_devices);
		c->devices = c->per_node * (double)f->nodes;
	} else
		return fo_hint(fo_fail(FO_EARG, "'%s' does not say how many devices the cluster has", path),
			       "'nodes: 16' and 'per_node: 8' say it");
	if (c->per_node != floor(c->per_node))
		return fo_fail(FO_EARG, "'%s': %lld devices are not divisible by %lld nodes", path,
			       (long long)f->devices, (long long)f->nodes);
	return divide(c, path);
}

/* A device whose memory differs from the catalogue's row. */
static fo_status file_memory(const struct file *f, const char *path, struct fo_cluster *c, struct fo_arena *arena)
{
	const struct fo_device *sold = c->device;
	if (f->memory_gb <= 0 && f->memory_tb_s <= 0)
		return FO_OK;
	if (f->memory_gb > MOST_TIMES * sold->memory_gb)
		return fo_hint(fo_fail(FO_EARG, "'%s': memory_gb is %g, and %s has %g GB", path, f->memory_gb,
				       sold->name, sold->memory_gb),
			       "--devices-file takes a device that the catalogue does not have");
	if (f->memory_tb_s > MOST_TIMES * sold->memory_tb_s)
		return fo_hint(fo_fail(FO_EARG, "'%s': memory_tb_s is %g, and %s has %g TB/s", path, f->memory_tb_s,
				       sold->name, sold->memory_tb_s),
			       "--devices-file takes a device that the catalogue does not have");
	struct fo_device *own = fo_arena_alloc(arena, sizeof *own);
	*own = *c->device;
	if (f->memory_gb > 0) {
		own->memory_gb = f->memory_gb;
		own->memory_usable_gb = FO_UNKNOWN;
	}
	if (f->memory_tb_s > 0)
		own->memory_tb_s = f->memory_tb_s;
	c->device = own;
	c->sold = sold;
	return FO_OK;
}

static fo_status read_file(struct fo_opt_set *s, struct file *f, const char *path, const struct fo_catalogue *catalogue,
			   struct fo_cluster *out, struct fo_arena *arena)
{
	FO_TRY(fo_opt_read_yaml(s, path));
	FO_TRY(fo_opt_finish(s));
	FO_TRY(check_zeros(s, f, path));
	if (f->device)
		FO_TRY(refuse_kind(f->device));
	if (!f->device)
		return fo_hint(fo_fail(FO_EARG, "'%s' does not name a device", path),
			       "'device: H100' does; 'flatout devices' lists the names");
	struct fo_cluster c = { .fabric = f->fabric ? fo_arena_strdup(arena, f->fabric) : NULL,
				.from = fo_arena_strdup(arena, path) };
	fo_status st = fo_catalogue_find(catalogue, f->device, &c.device);
	if (st != FO_OK)
		return fo_wrap(st, "'%s'", path);
	links(&c);
	if (f->net) {
		FO_TRY(fo_range_parse(f->net, "net_gbit", &c.net_gb_s));
		if (!(c.net_gb_s.low > 0))
			return fo_hint(
				fo_fail(FO_EARG, "'%s': net_gbit is %s, and nothing travels at 0 Gbit/s", path, f->net),
				"leave it out for the device's usual adapter");
		c.net_gb_s = fo_range_scaled(1 / 8., c.net_gb_s);
		c.net_assumed = false;
	}
	FO_TRY(file_numbers(f, path, &c));
	FO_TRY(file_memory(f, path, &c, arena));
	*out = c;
	return FO_OK;
}

static fo_status from_file(const char *path, const struct fo_catalogue *catalogue, struct fo_cluster *out,
			   struct fo_arena *arena)
{
	struct file f = { 0 };
	struct fo_opt_set s;
	fo_opt_init(&s, file_rows, &f);
	fo_status st = read_file(&s, &f, path, catalogue, out, arena);
	fo_opt_fini(&s);
	return st;
}

/* ---- a text ---- */

static fo_status expected(const char *text)
{
	return fo_hint(fo_fail(FO_EARG, "'%s' is not a cluster", text), "expected " EXAMPLES);
}

/* A number followed by "x": its value, with *text behind the x; 0: there is none. */
static double count(const char **text)
{
	char *end;
	if (**text < '0' || **text > '9')
		return 0;
	unsigned long n = strtoul(*text, &end, 10);
	if ((*end != 'x' && *end != 'X' && *end != '*') || n > MOST_DEVICES)
		return 0;
	*text = end + 1;
	return (double)n;
}

/* A name that means a whole system: "HGX-H100" and "DGX-A100" are nodes of eight, "GB200-NVL72" a rack of 72. Its
 * devices; 0: the name means one device. *name is the device's. */
static double system_of(const char **name)
{
	static const char *const node[] = { "HGX-", "DGX-", "HGX ", "DGX " };
	for (size_t i = 0; i < sizeof node / sizeof *node; i++)
		if (!strncasecmp(*name, node[i], strlen(node[i]))) {
			*name += strlen(node[i]);
			return NODE;
		}
	const char *rack = strcasestr(*name, "-NVL");
	int devices = rack ? atoi(rack + strlen("-NVL")) : 0;
	return devices > NODE && devices < 1000 ? devices : 0;
}

static fo_status from_text(const char *text, const struct fo_catalogue *catalogue, struct fo_cluster *out,
			   struct fo_arena *arena)
{
	if (strchr("+-", *text))
		return expected(text);
	FO_TRY(refuse_kind(text));
	struct fo_cluster c = { .from = fo_arena_strdup(arena, text) };
	const char *name = text;
	double first = count(&name), second = first > 0 ? count(&name) : 0;
	double of_system = system_of(&name);
	if (!*name || (*name >= '0' && *name <= '9') || (first == 0 && strchr("0123456789", *text)))
		return expected(text);
	fo_status st = fo_catalogue_find(catalogue, name, &c.device);
	if (st != FO_OK)
		return fo_wrap(st, "the cluster '%s'", text);
	if (of_system == NODE && c.device->scaleup_devices > NODE)
		of_system = c.device->scaleup_devices; /* "DGX-GB200" is a rack */
	first = fmax(first, 1);
	if (second > 0) {
		c.per_node = second;
		c.devices = first * second;
	} else if (of_system > 0) {
		c.per_node = of_system;
		c.devices = first * of_system;
	} else {
		c.devices = first;
		c.per_node = node_of(c.device, first);
	}
	links(&c);
	FO_TRY(divide(&c, text));
	*out = c;
	return FO_OK;
}

fo_status fo_cluster_parse(const char *text, const struct fo_catalogue *catalogue, struct fo_cluster *out,
			   struct fo_arena *arena)
{
	static const char *const suffix[] = { ".yaml", ".yml", ".json" };
	size_t len = strlen(text);
	bool file = strchr(text, '/') || access(text, F_OK) == 0;
	for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++)
		file |= len > strlen(suffix[i]) && !strcasecmp(text + len - strlen(suffix[i]), suffix[i]);
	return file ? from_file(text, catalogue, out, arena) : from_text(text, catalogue, out, arena);
}

/* A driver shows a little less than the vendor's figure, in GiB: 139.8 of an H200's 141, 79.6 of an H100's 80, 179.1 of
 * a B200's 180 (November 2026). */
static const struct fo_range shown = { 0.985, 0.995 };

struct fo_range fo_cluster_usable(const struct fo_cluster *c)
{
	double gib = isnan(c->device->memory_usable_gb) ? c->device->memory_gb : c->device->memory_usable_gb;
	return fo_range_scaled(gib * (double)(1 << 30), shown);
}
