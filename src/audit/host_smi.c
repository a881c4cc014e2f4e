/* Readers of nvidia-smi's outputs. */
#include "audit/host_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nvidia-smi -q ---- */

enum how { NUMBER, YES, WORD, SUM, MICROSECONDS };
/* A line below a heading ("" : of the GPU itself). */
static const struct {
	const char *heading, *key;
	enum fo_gpu_id id;
	enum how how;
} query[] = {
	{ "", "Product Name", FO_GPU_NAME, WORD },
	{ "", "Persistence Mode", FO_GPU_PERSISTENCE, YES },
	{ "", "Compute Mode", FO_GPU_COMPUTE_MODE, WORD },
	{ "", "Performance State", FO_GPU_PSTATE, WORD },
	{ "MIG Mode", "Current", FO_GPU_MIG, YES },
	{ "Utilization", "Gpu", FO_GPU_BUSY, NUMBER },
	{ "Utilization", "GPU", FO_GPU_BUSY, NUMBER },
	{ "PCIe Generation", "Current", FO_GPU_PCIE_GEN, NUMBER },
	{ "PCIe Generation", "Max", FO_GPU_PCIE_GEN_MAX, NUMBER },
	{ "Link Width", "Current", FO_GPU_PCIE_WIDTH, NUMBER },
	{ "Link Width", "Max", FO_GPU_PCIE_WIDTH_MAX, NUMBER },
	{ "GPU Power Readings", "Current Power Limit", FO_GPU_LIMIT_W, NUMBER },
	{ "GPU Power Readings", "Default Power Limit", FO_GPU_DEFAULT_W, NUMBER },
	{ "GPU Power Readings", "Power Draw", FO_GPU_POWER_W, NUMBER },
	{ "GPU Power Readings", "Average Power Draw", FO_GPU_POWER_W, NUMBER },
	{ "GPU Power Readings", "Instantaneous Power Draw", FO_GPU_POWER_W, NUMBER },
	{ "Power Readings", "Power Limit", FO_GPU_LIMIT_W, NUMBER },
	{ "Power Readings", "Enforced Power Limit", FO_GPU_LIMIT_W, NUMBER },
	{ "Power Readings", "Default Power Limit", FO_GPU_DEFAULT_W, NUMBER },
	{ "Power Readings", "Power Draw", FO_GPU_POWER_W, NUMBER },
	{ "Clocks", "SM", FO_GPU_SM_MHZ, NUMBER },
	{ "Max Clocks", "SM", FO_GPU_SM_MAX_MHZ, NUMBER },
	{ "Applications Clocks", "Graphics", FO_GPU_APP_MHZ, NUMBER },
	{ "Default Applications Clocks", "Graphics", FO_GPU_APP_DEFAULT_MHZ, NUMBER },
	{ "Clocks Event Reasons", "Idle", FO_GPU_IDLE, YES },
	{ "Clocks Event Reasons", "Applications Clocks Setting", FO_GPU_REASON_APP, YES },
	{ "Clocks Event Reasons", "SW Power Cap", FO_GPU_REASON_POWER, YES },
	{ "Clocks Event Reasons", "HW Slowdown", FO_GPU_REASON_HW, YES },
	{ "Clocks Event Reasons", "SW Thermal Slowdown", FO_GPU_REASON_SW_THERMAL, YES },
	{ "HW Slowdown", "HW Thermal Slowdown", FO_GPU_REASON_HW_THERMAL, YES },
	{ "HW Slowdown", "HW Power Brake Slowdown", FO_GPU_REASON_BRAKE, YES },
	{ "Clocks Event Reasons Counters", "HW Thermal Slowdown", FO_GPU_THERMAL_S, MICROSECONDS },
	{ "Clocks Event Reasons Counters", "HW Power Braking", FO_GPU_BRAKE_S, MICROSECONDS },
	{ "Temperature", "GPU Current Temp", FO_GPU_TEMPERATURE, NUMBER },
	{ "ECC Mode", "Current", FO_GPU_ECC, YES },
	{ "ECC Mode", "Pending", FO_GPU_ECC_PENDING, YES },
	{ "Volatile", "SRAM Uncorrectable", FO_GPU_UNCORRECTED, SUM },
	{ "Volatile", "SRAM Uncorrectable Parity", FO_GPU_UNCORRECTED, SUM },
	{ "Volatile", "SRAM Uncorrectable SEC-DED", FO_GPU_UNCORRECTED, SUM },
	{ "Volatile", "DRAM Uncorrectable", FO_GPU_UNCORRECTED, SUM },
	{ "Remapped Rows", "Pending", FO_GPU_REMAP_PENDING, YES },
	{ "Remapped Rows", "Remapping Failure Occurred", FO_GPU_REMAP_FAILED, YES },
	{ "Retired Pages", "Pending Page Blacklist", FO_GPU_RETIRE_PENDING, YES },
	{ "Fabric", "Status", FO_GPU_FABRIC, WORD },
};

/* Has this GPU's section told a part of the sum already? Another file, or the short table, tells the whole again. */
static bool goes_on(const struct fo_host_reader *r, const struct fo_host_fact *f)
{
	return f->file && f->file == r->file && f->line > r->gpu_line;
}

static double value_of(const struct fo_host_reader *r, enum how how, const char *text,
		       const struct fo_host_fact *before)
{
	double v = how == YES ? fo_host_yes(text) : fo_host_number_at(text);
	if (how == MICROSECONDS)
		return v * 1e-6;
	if (how == SUM && goes_on(r, before))
		return v + before->number;
	return how == WORD ? NAN : v;
}

static void tell_gpu(struct fo_host_reader *r, const char *heading, const char *key, const char *value)
{
	if (!strncmp(value, "N/A", 3) || !strncmp(value, "[N/A", 4) || !*value)
		return;
	/* Drivers before 545 say "Throttle" where later ones say "Event", and before 495 "Ecc". */
	if (!strcmp(heading, "Clocks Throttle Reasons"))
		heading = "Clocks Event Reasons";
	if (!strcmp(heading, "Ecc Mode"))
		heading = "ECC Mode";
	for (size_t i = 0; i < sizeof query / sizeof *query; i++) {
		if (strcmp(query[i].key, key) || strcmp(query[i].heading, heading))
			continue;
		struct fo_host_fact *to = &fo_host_gpu_at(r, r->gpu)->fact[query[i].id];
		double v = value_of(r, query[i].how, value, to);
		if (isnan(v) && query[i].how != WORD)
			return;
		/* Of a sum the largest part's line is the evidence; zeros leave it where it was. */
		if (query[i].how == SUM && goes_on(r, to) && v == to->number)
			return;
		fo_host_tell(r, to, FO_KIND_SMI_QUERY, v, value, strlen(value));
		return;
	}
}

/* "    Key    : Value" and headings without a colon; the nearest line with less indentation is the heading. */
static void query_line(struct fo_host_reader *r, const struct fo_line *l)
{
	const int most = (int)(sizeof r->indent / sizeof *r->indent);
	const char *p = fo_line_trimmed(l), *colon = strstr(p, " : ");
	size_t n = colon ? (size_t)(colon - p) : strlen(p);
	while (n && isspace((unsigned char)p[n - 1]))
		n--;
	while (r->depth && r->indent[r->depth - 1] >= l->indent)
		r->depth--;
	const char *heading = r->depth && r->indent[r->depth - 1] > 0 ? r->path[r->depth - 1] : "";
	char key[sizeof *r->path];
	snprintf(key, sizeof key, "%.*s", (int)(n < sizeof key ? n : sizeof key - 1), p);
	if (colon && r->gpu >= 0)
		tell_gpu(r, heading, key, colon + 3 + strspn(colon + 3, " "));
	if (r->depth < most) {
		memcpy(r->path[r->depth], key, sizeof key);
		r->indent[r->depth++] = l->indent;
	}
}

static bool query_head(struct fo_host_reader *r, const char *p)
{
	static const struct {
		const char *key;
		enum fo_host_id id;
	} head[] = { { "Driver Version", FO_HOST_DRIVER },
		     { "CUDA Version", FO_HOST_CUDA },
		     { "Attached GPUs", FO_HOST_GPUS } };
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		if (fo_host_begins(p, head[i].key)) {
			const char *colon = strchr(p, ':');
			const char *value = colon ? colon + 1 + strspn(colon + 1, " ") : "";
			if (*value)
				fo_host_tell(r, &fo_reader_host(r)->fact[head[i].id], FO_KIND_SMI_QUERY,
					     fo_host_number_at(value), value, strlen(value));
			return true;
		}
	return fo_host_begins(p, "Timestamp");
}

/* "GPU 00000000:03:00.0" */
static bool is_bus(const char *p)
{
	return fo_host_begins(p, "GPU ") && strspn(p + 4, "0123456789abcdefABCDEF") == 8 && p[12] == ':';
}

bool fo_read_smi_query(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l);
	if (strstr(p, "NVSMI LOG")) {
		fo_host_begin(r, FO_KIND_SMI_QUERY);
		return true;
	}
	if (!l->indent && is_bus(p)) {
		if (r->kind != FO_KIND_SMI_QUERY)
			fo_host_begin(r, FO_KIND_SMI_QUERY);
		r->gpu++;
		r->depth = 0;
		r->gpu_line = r->line;
		fo_host_gpu_at(r, r->gpu)->bus = fo_arena_printf(&r->f->arena, "%.*s",
								 (int)strspn(p + 4, "0123456789abcdefABCDEF:."), p + 4);
		r->found[FO_KIND_SMI_QUERY]++;
		return true;
	}
	if (r->kind != FO_KIND_SMI_QUERY)
		return false;
	if (l->indent) {
		query_line(r, l);
		return true;
	}
	return !*p || query_head(r, p);
}

/* ---- the table of nvidia-smi ---- */

/* Cuts "| a | b |" into cells. */
static int cells(const char *p, const char *cell[4], size_t len[4])
{
	int n = 0;
	for (p++; *p && n < 4; p++) {
		size_t k = strcspn(p, "|");
		if (!p[k])
			break;
		cell[n] = p + strspn(p, " ");
		len[n] = cell[n] < p + k ? (size_t)(p + k - cell[n]) : 0;
		while (len[n] && cell[n][len[n] - 1] == ' ')
			len[n]--;
		n++;
		p += k;
	}
	return n;
}

static void fill(struct fo_host_reader *r, enum fo_gpu_id id, double v, const char *text, size_t n)
{
	if (!isnan(v) || id == FO_GPU_NAME || id == FO_GPU_COMPUTE_MODE || id == FO_GPU_PSTATE)
		fo_host_fill(r, &fo_host_gpu_at(r, r->gpu)->fact[id], FO_KIND_SMI_TABLE, v, text, n);
}

/* "0  NVIDIA H100 80GB HBM3          On" */
static bool table_first(struct fo_host_reader *r, const char *c, size_t n)
{
	char *name;
	long index = strtol(c, &name, 10);
	if (name == c || index < 0 || index > 127 || !isspace((unsigned char)*name))
		return false;
	const char *end = c + n;
	while (end > name && !isspace((unsigned char)end[-1]))
		end--;
	char mode[16];
	snprintf(mode, sizeof mode, "%.*s", (int)(c + n - end), end);
	name += strspn(name, " ");
	while (end > name && isspace((unsigned char)end[-1]))
		end--;
	if (end <= name || isnan(fo_host_yes(mode)))
		return false;
	r->gpu = (int)index;
	r->row = 1;
	fill(r, FO_GPU_NAME, NAN, name, (size_t)(end - name));
	fill(r, FO_GPU_PERSISTENCE, fo_host_yes(mode), mode, strlen(mode));
	return true;
}

/* "N/A   28C    P0             73W /  700W", "0MiB / 81559MiB", "0%      Default" */
static void table_second(struct fo_host_reader *r, const char *const cell[4], const size_t len[4])
{
	char text[128];
	snprintf(text, sizeof text, "%.*s", (int)len[0], cell[0]);
	const char *slash = strchr(text, '/'), *state = strstr(text, " P");
	slash = slash && fo_host_begins(text, "N/A") && slash == text + 1 ? strchr(slash + 1, '/') : slash;
	if (slash)
		fill(r, FO_GPU_LIMIT_W, fo_host_number_at(slash + 1), slash + 1 + strspn(slash + 1, " "),
		     strlen(slash + 1 + strspn(slash + 1, " ")));
	if (state && isdigit((unsigned char)state[2]))
		fill(r, FO_GPU_PSTATE, NAN, state + 1, strcspn(state + 1, " "));
	snprintf(text, sizeof text, "%.*s", (int)len[2], cell[2]);
	fill(r, FO_GPU_BUSY, fo_host_number_at(text), text, strcspn(text, " "));
	const char *mode = strchr(text, '%');
	if (mode && *(mode += 1 + strspn(mode + 1, " ")))
		fill(r, FO_GPU_COMPUTE_MODE, NAN, mode, strlen(mode));
}

static bool table_row(struct fo_host_reader *r, const char *p)
{
	const char *cell[4];
	size_t len[4];
	int n = cells(p, cell, len);
	if (n != 3)
		return true;
	char text[32];
	snprintf(text, sizeof text, "%.*s", (int)len[2], cell[2]);
	if (table_first(r, cell[0], len[0])) {
		fill(r, FO_GPU_UNCORRECTED, fo_host_number_at(text), text, strlen(text));
	} else if (r->row == 1) {
		table_second(r, cell, len);
		r->row = 2;
	} else if (r->row == 2) {
		fill(r, FO_GPU_MIG, fo_host_yes(text), text, strlen(text));
		r->row = 0;
	}
	return true;
}

static void table_version(struct fo_host_reader *r, const char *p, const char *key, enum fo_host_id id)
{
	const char *v = strstr(p, key);
	if (!v)
		return;
	v += strlen(key);
	v += strspn(v, " ");
	size_t n = strcspn(v, " |");
	if (n && isdigit((unsigned char)*v))
		fo_host_fill(r, &fo_reader_host(r)->fact[id], FO_KIND_SMI_TABLE, fo_host_number_at(v), v, n);
}

bool fo_read_smi_table(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l);
	if (fo_host_begins(p, "| NVIDIA-SMI ")) {
		fo_host_begin(r, FO_KIND_SMI_TABLE);
		table_version(r, p, "Driver Version:", FO_HOST_DRIVER);
		table_version(r, p, "CUDA Version:", FO_HOST_CUDA);
		return true;
	}
	if (fo_host_begins(p, "NVIDIA-SMI has failed") || fo_host_begins(p, "Failed to initialize NVML") ||
	    fo_host_begins(p, "Unable to determine the device handle")) {
		fo_host_tell(r, &fo_reader_host(r)->fact[FO_HOST_SMI_FAILED], FO_KIND_SMI_TABLE, 1, p, strlen(p));
		return true;
	}
	if (r->kind != FO_KIND_SMI_TABLE)
		return false;
	if (*p == '|' && !strstr(p, "Processes:"))
		return table_row(r, p);
	return *p == '+' || *p == '|' || !*p;
}

/* ---- nvidia-smi topo -m ---- */

static const char name_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";

static bool is_label(const char *w, size_t n)
{
	if (strspn(w, name_letters) < n)
		return false;
	if (n > 3 && (!strncmp(w, "GPU", 3) || !strncmp(w, "NIC", 3)))
		return strspn(w + 3, "0123456789") == n - 3;
	return (n > 4 && !strncmp(w, "mlx", 3)) || (n > 3 && (!strncmp(w, "ibp", 3) || !strncmp(w, "bnxt", 4) ||
							      !strncmp(w, "rdmap", 5) || !strncmp(w, "irdma", 5)));
}

static int label_of(struct fo_host_reader *r, const char *w, size_t n)
{
	struct fo_host *h = fo_reader_host(r);
	for (int i = 0; i < h->topo_names; i++)
		if (!strncmp(h->topo_name[i], w, n) && !h->topo_name[i][n])
			return i;
	if (h->topo_names >= FO_TOPO_MOST)
		return -1;
	h->topo_name[h->topo_names] = fo_arena_printf(&r->f->arena, "%.*s", (int)n, w);
	return h->topo_names++;
}

/* The header: "	GPU0	GPU1	NIC0	CPU Affinity	NUMA Affinity" */
static bool topo_head(struct fo_host_reader *r, const char *p)
{
	if (!fo_host_begins(p, "GPU0") || !isspace((unsigned char)p[4]))
		return false;
	const char *next = p + 4 + strspn(p + 4, " \t");
	size_t second = strcspn(next, " \t");
	if (!is_label(next, second) && !fo_host_begins(next, "CPU Affinity"))
		return false;
	fo_host_begin(r, FO_KIND_SMI_TOPO);
	r->columns = 0;
	for (const char *w = p; *w && r->columns < FO_TOPO_MOST;) {
		size_t n = strcspn(w, " \t");
		int label = is_label(w, n) ? label_of(r, w, n) : -1;
		if (label < 0)
			break;
		r->column[r->columns++] = label;
		w += n + strspn(w + n, " \t");
	}
	return true;
}

static bool is_path(const char *w, size_t n)
{
	return n < 8 && ((n > 2 && !strncmp(w, "NV", 2) && strspn(w + 2, "0123456789") == n - 2) ||
			 (n == 3 && (!strncmp(w, "PIX", 3) || !strncmp(w, "PXB", 3) || !strncmp(w, "PHB", 3) ||
				     !strncmp(w, "SYS", 3) || !strncmp(w, "SOC", 3))) ||
			 (n == 4 && !strncmp(w, "NODE", 4)));
}

static void add_link(struct fo_host_reader *r, int from, int to, const char *w, size_t n)
{
	struct fo_host *h = fo_reader_host(r);
	if (h->links >= FO_TOPO_MOST * FO_TOPO_MOST)
		return;
	fo_array_room(&h->link, &h->link_cap, h->links, sizeof *h->link);
	struct fo_host_link *k = &h->link[h->links++];
	*k = (struct fo_host_link){ .from = (int16_t)from, .to = (int16_t)to };
	snprintf(k->path, sizeof k->path, "%.*s", (int)n,
		 strncmp(w, "SOC", 3) ? w : "SYS"); /* SOC: before driver 375 */
	fo_host_tell(r, &k->at, FO_KIND_SMI_TOPO, NAN, w, n);
}

/* "GPU0	 X 	NV18	PIX	0-47,96-143	0		N/A" */
static bool topo_row(struct fo_host_reader *r, const char *p)
{
	size_t n = strcspn(p, " \t");
	if (!is_label(p, n) || !p[n])
		return false;
	int from = label_of(r, p, n), at = 0;
	const char *w = p + n + strspn(p + n, " \t");
	bool gpu = fo_host_begins(p, "GPU");
	for (; *w && at < r->columns && from >= 0; at++) {
		n = strcspn(w, " \t");
		if (is_path(w, n))
			add_link(r, from, r->column[at], w, n);
		else if (n != 1 || *w != 'X')
			break;
		w += n + strspn(w + n, " \t");
	}
	if (!gpu || at < r->columns || !isdigit((unsigned char)*w))
		return true;
	w += strcspn(w, " \t"); /* processors; then the NUMA node */
	w += strspn(w, " \t");
	n = strspn(w, "0123456789");
	if (n && (!w[n] || isspace((unsigned char)w[n])))
		fo_host_tell(r, &fo_host_gpu_at(r, atoi(p + 3))->fact[FO_GPU_NUMA], FO_KIND_SMI_TOPO,
			     fo_host_number_at(w), w, n);
	return true;
}

/* "  NIC0: mlx5_0" */
static bool topo_legend(struct fo_host_reader *r, const char *p)
{
	struct fo_host *h = fo_reader_host(r);
	size_t n = fo_host_begins(p, "NIC") ? strcspn(p, ":") : 0;
	if (!n || !is_label(p, n) || p[n] != ':')
		return false;
	int label = label_of(r, p, n);
	p += n + 1;
	p += strspn(p, " \t");
	n = strspn(p, name_letters);
	if (label >= 0 && n && n < 64)
		h->topo_name[label] = fo_arena_printf(&r->f->arena, "%.*s", (int)n, p);
	return true;
}

bool fo_read_smi_topo(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l);
	if (topo_head(r, p))
		return true;
	if (r->kind != FO_KIND_SMI_TOPO)
		return false;
	return !*p || topo_legend(r, p) || topo_row(r, p) || fo_host_begins(p, "Legend:") ||
	       fo_host_begins(p, "NIC Legend:") || strstr(p, "= Connection") || strstr(p, "= Self");
}

/* ---- nvidia-smi nvlink -s ---- */

static void link_line(struct fo_host_reader *r, const char *p)
{
	struct fo_host_gpu *g = fo_host_gpu_at(r, r->gpu);
	const char *colon = strchr(p, ':');
	double speed = colon ? fo_host_number_at(colon + 1) : NAN;
	if (!colon || strstr(p, "Error"))
		return;
	bool up = !isnan(speed) && strstr(colon, "GB/s");
	if (!up && !strstr(colon, "nactive"))
		return;
	*(up ? &r->links_up : &r->links_down) += 1;
	fo_host_tell(r, &g->fact[FO_GPU_LINKS_UP], FO_KIND_SMI_NVLINK, r->links_up, p, strlen(p));
	if (!up)
		fo_host_tell(r, &g->fact[FO_GPU_LINKS_DOWN], FO_KIND_SMI_NVLINK, r->links_down, p, strlen(p));
	else if (!g->fact[FO_GPU_LINK_GB_S].file || !(speed > g->fact[FO_GPU_LINK_GB_S].number))
		fo_host_tell(r, &g->fact[FO_GPU_LINK_GB_S], FO_KIND_SMI_NVLINK, speed, p, strlen(p));
}

bool fo_read_smi_nvlink(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l), *name;
	char *end;
	if (fo_host_begins(p, "GPU ") && isdigit((unsigned char)p[4]) && (name = strchr(p, ':')) &&
	    (strstr(p, "(UUID") || fo_host_begins(name, ": NVIDIA "))) {
		long index = strtol(p + 4, &end, 10);
		if (index > 127 || end != name)
			return false;
		if (r->kind != FO_KIND_SMI_NVLINK)
			fo_host_begin(r, FO_KIND_SMI_NVLINK);
		r->gpu = (int)index;
		r->links_up = r->links_down = 0;
		name += 1 + strspn(name + 1, " ");
		const char *uuid = strstr(name, "(UUID");
		fo_host_fill(r, &fo_host_gpu_at(r, r->gpu)->fact[FO_GPU_NAME], FO_KIND_SMI_NVLINK, NAN, name,
			     uuid ? (size_t)(uuid - name) : strlen(name));
		return true;
	}
	if (r->kind != FO_KIND_SMI_NVLINK || r->gpu < 0)
		return false;
	if (fo_host_begins(p, "Link "))
		link_line(r, p);
	return !*p || fo_host_begins(p, "Link ");
}

/* ---- nvidia-smi boost-slider -l ---- */

/* A row of its table with "vboost": the last number is the value now. */
bool fo_read_smi_boost(struct fo_host_reader *r, const struct fo_line *l)
{
	const char *p = fo_line_trimmed(l), *last = NULL;
	if (*p != '|' || !strstr(p, "vboost"))
		return false;
	for (const char *w = p; *w; w += strcspn(w, " |"), w += strspn(w, " |"))
		if (isdigit((unsigned char)*w))
			last = w;
	const char *index = p + strspn(p, "| ");
	if (!last || !isdigit((unsigned char)*index) || last == index || atoi(index) > 127)
		return true;
	fo_host_tell(r, &fo_host_gpu_at(r, atoi(index))->fact[FO_GPU_VBOOST], FO_KIND_SMI_BOOST,
		     fo_host_number_at(last), last, strcspn(last, " |"));
	return true;
}
