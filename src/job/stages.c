/* Pipeline stages that a file divides unevenly: Megatron-LM's first and last stage, its layout, and ends that count as
 * layers. */
#include "job/memory_int.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WRONG(...) (o->wrong = o->wrong ? o->wrong : fo_arena_printf(&job->arena, __VA_ARGS__))

/* ---- Megatron-LM's layout: "Et*3|(tt|)*29,m|L" ---- */

enum { LAYOUT_STAGES = 1024, LAYOUT_ELEMENTS = 100000 /* more than 10,000 layers need, with ends and bars */ };
struct layout {
	double layers[LAYOUT_STAGES]; /* decoders of each chunk, in the order of the model */
	int chunks, elements;
	bool bad;
};

static void put(struct layout *l, char c)
{
	if (c == '|' && l->chunks < LAYOUT_STAGES)
		l->layers[l->chunks++] = 0;
	else if (c == 't')
		l->layers[l->chunks - 1]++;
	l->bad |= (c == '|' && l->chunks == LAYOUT_STAGES) || !strchr("|tEmL,", c) || ++l->elements > LAYOUT_ELEMENTS;
}

/* "*29" behind an element or a bracket; 1 where none is. */
static long times(const char **at)
{
	char *end;
	if (**at != '*')
		return 1;
	long n = strtol(*at + 1, &end, 10);
	bool none = end == *at + 1;
	*at = end;
	return none || n < 0 || n > 10000 ? -1 : n;
}

static void read_layout(const char *text, struct layout *l)
{
	const char *at = text;
	*l = (struct layout){ .chunks = 1 };
	while (*at && !l->bad) {
		const char *from = at, *to = at + 1;
		if (isspace((unsigned char)*at) || *at == '"' || *at == '\'') {
			at++;
			continue;
		}
		if (*at == '(') {
			const char *close = strchr(at, ')');
			l->bad |= !close || (strchr(at + 1, '(') && strchr(at + 1, '(') < close);
			from = at + 1, to = close ? close : from;
			at = close ? close + 1 : at + strlen(at);
		} else {
			at++;
		}
		long n = times(&at);
		l->bad |= n < 0;
		for (long i = 0; i < n && !l->bad; i++)
			for (const char *c = from; c < to && !l->bad; c++) {
				const char *next = c + 1;
				long each = next < to ? times(&next) : 1; /* inside of brackets, too */
				for (long k = 0; k < each && !l->bad; k++)
					put(l, *c);
				l->bad |= each < 0;
				c = next - 1;
			}
	}
}

static void by_layout(struct fo_job *job, struct fo_job_shape *o, const char *text)
{
	struct layout l;
	read_layout(text, &l);
	double all = 0, layers = (double)job->model.layers;
	for (int i = 0; i < l.chunks; i++)
		all += l.layers[i];
	if (l.bad || l.chunks < o->pp) {
		WRONG("the layout of pipeline stages is not understood: '%.64s'", text);
		return;
	}
	if (all != layers || fmod(l.chunks, o->pp) != 0) {
		WRONG("the layout of stages has %.15g layers in %d parts, and the model has %.15g for %.15g stages",
		      all, l.chunks, layers, o->pp);
		return;
	}
	int pp = (int)o->pp;
	o->chunks = l.chunks / pp;
	o->middle_layers = 0;
	for (int s = 0; s < pp; s++) {
		double here = 0;
		for (int c = s; c < l.chunks; c += pp)
			here += l.layers[c];
		if (s == 0)
			o->first_layers = here;
		else if (s == pp - 1)
			o->last_layers = here;
		else
			o->middle_layers = fmax(o->middle_layers, here);
	}
}

/* ---- first and last stage ---- */

static bool whole(double n) { return isnan(n) || (n >= 0 && n == floor(n)); }

static void by_ends(struct fo_job *job, struct fo_job_shape *o, double first, double last)
{
	if (!whole(first) || !whole(last)) {
		WRONG("the layers of the first or the last pipeline stage are no whole number from 0 on");
		return;
	}
	double layers = (double)job->model.layers, stages = o->pp - !isnan(first) - !isnan(last);
	double left = layers;
	left -= isnan(first) ? 0 : first;
	left -= isnan(last) ? 0 : last;
	if (left < 0 || (stages <= 0 && left != 0) || (stages > 0 && fmod(left, stages) != 0)) {
		WRONG("%.15g of %.15g layers are left for %.15g pipeline stages beside the first or last one", left,
		      layers, stages);
		return;
	}
	o->middle_layers = stages > 0 ? left / stages : 0;
	o->first_layers = isnan(first) ? o->middle_layers : first;
	o->last_layers = isnan(last) ? o->middle_layers : last;
}

static void by_count(struct fo_job *job, struct fo_job_shape *o, bool embedding, bool loss)
{
	double layers = (double)job->model.layers + embedding + loss;
	if (fmod(layers, o->pp) != 0) {
		WRONG("%.15g layers, of which %d are embedding and head, are not divisible by %.15g pipeline stages",
		      layers, embedding + loss, o->pp);
		return;
	}
	o->middle_layers = layers / o->pp;
	o->first_layers = o->middle_layers - embedding;
	o->last_layers = o->middle_layers - loss;
}

void fo_job_stages_of(struct fo_job *job, struct fo_job_shape *o)
{
	const char *layout = job->value[FO_JOB_PP_LAYOUT].text;
	double first = fo_job_number(job, FO_JOB_PP_FIRST_LAYERS), last = fo_job_number(job, FO_JOB_PP_LAST_LAYERS);
	bool embedding = fo_job_is(job, FO_JOB_PP_EMBEDDING_COUNTS, 1), loss = fo_job_is(job, FO_JOB_PP_LOSS_COUNTS, 1);
	if (!(o->pp > 1) || o->pp > LAYOUT_STAGES || !job->has_model)
		return;
	if (layout && *layout && strcasecmp(layout, "none") && strcasecmp(layout, "null"))
		by_layout(job, o, layout);
	else if (!isnan(first) || !isnan(last))
		by_ends(job, o, first, last);
	else if (embedding || loss)
		by_count(job, o, embedding, loss);
}
