/* How many divisions a second the search of flatout plan evaluates for time and memory, and how long the answer for
 * 1,024 H100 and Llama 405B takes. Beside calculon: bench/plan_speed/README.md.
 *
 *   cmake --build build/release --target bench_plan_speed && build/release/bench_plan_speed [repetitions] */
#include "base/clock.h"
#include "hw/catalogue.h"
#include "model/model.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void ask(struct fo_plan_asked *a, const struct fo_catalogue *c, const char *model, double devices, double batch)
{
	const struct fo_device *d;
	struct fo_model m;
	struct fo_predict_job job = { .style = FO_PREDICT_STYLE_MCORE, .type = FO_PREDICT_BF16, .seq = 8192 };
	if (fo_catalogue_find(c, "h100", &d) || fo_model_load(model, &m) || fo_predict_machine_of(d, &job.machine))
		exit(3);
	fo_predict_model_of(&m, &job.model);
	*a = (struct fo_plan_asked){ .framework = fo_plan_framework_of("any"),
				     .devices = devices,
				     .global_batch = batch,
				     .fixed = FO_PLAN_FREE };
	if (fo_predict_prepare(&job, &a->base))
		exit(3);
}

/* One search, by the clock and by the processors' time: on a busy machine the second is what the search takes. */
static void report(const struct fo_plan_asked *a, const char *what)
{
	static struct fo_plan plan;
	double begin = (double)clock() / CLOCKS_PER_SEC;
	if (fo_plan_search(&plan, a))
		exit(3);
	double cpu = (double)clock() / CLOCKS_PER_SEC - begin;
	printf("%s: %lld legal, %lld timed in %.3f s, %.3f s of processors: %.0f and, on two of its own, %.0f timed a "
	       "second; best step %.2f s\n",
	       what, (long long)plan.legal, (long long)plan.timed, plan.seconds, cpu, (double)plan.timed / plan.seconds,
	       2 * (double)plan.timed / cpu, plan.point[0].step.seconds);
}

int main(int argc, char **argv)
{
	int times = argc > 1 ? atoi(argv[1]) : 3;
	struct fo_catalogue c;
	struct fo_plan_asked a;
	if (times < 1 || fo_catalogue_load(&c, NULL))
		return 3;
	for (int i = 0; i < times; i++) {
		ask(&a, &c, "llama-3.1-70b", 256, 512);
		a.memory_bytes = 1e15; /* so that each is timed */
		report(&a, "70B on 256 H100, memory without end");
		ask(&a, &c, "llama-3.1-405b", 1024, 2048);
		report(&a, "405B on 1,024 H100");
	}
	fo_catalogue_fini(&c);
	return 0;
}
