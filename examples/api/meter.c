/* The MFU meter inside somebody else's training loop. Theirs is step(): here it only waits, as for 64 accelerators that
 * are busy. Build: cc meter.c -o meter $(pkg-config --cflags --libs flatout) */
#define _POSIX_C_SOURCE 200809L
#include <flatout.h>
#include <stdio.h>
#include <time.h>
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double step(void) /* tokens with loss that all devices together trained on */
{
	nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
	return 16384;
}
int main(void)
{
	flatout_model *model;
	flatout_meter *meter = NULL;
	double peak;
	char source[120];
	if (flatout_model_load("llama-3.1-8b", &model) ||
	    flatout_device_peak("h100", "bf16", &peak, source, sizeof(source)) ||
	    flatout_meter_create(model, 8192, peak, 64, &meter))
		return fprintf(stderr, "meter: %s\n", flatout_error()), 2;
	for (int i = 0; i < 20; i++) { /* their loop; the three lines with `begin` and the meter are new */
		double begin = now(), tokens = step();
		if (flatout_meter_step(meter, tokens, now() - begin) == FLATOUT_OK && i % 5 == 4)
			printf("step %2d  MFU %.1f %%\n", i + 1,
			       100 * flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_SMOOTH));
	}
	printf("median MFU %.1f %% by rule mfu, %.1f %% mfu_causal\n",
	       100 * flatout_meter_mfu(meter, FLATOUT_MFU, FLATOUT_MEDIAN),
	       100 * flatout_meter_mfu(meter, FLATOUT_MFU_CAUSAL, FLATOUT_MEDIAN));
	printf("of %.0f TFLOP/s bf16 dense x 64 (%s)\n", peak / 1e12, source);
	flatout_meter_free(meter);
	flatout_model_free(model);
}
