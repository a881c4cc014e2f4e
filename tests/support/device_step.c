#include "support/device_step.h"
#include "support/must.h"

#include <stdio.h>
#include <string.h>

void device_rig_rates(struct device_rig *g, const char *name)
{
	const struct fo_device *d;
	memset(g, 0, sizeof *g);
	must(fo_catalogue_load(&g->catalogue, NULL));
	must(fo_catalogue_find(&g->catalogue, name, &d));
	must(fo_device_rates_init(&g->rates, d));
}

void device_rig_build(struct device_rig *g, const char *options)
{
	char text[1024], *argv[64] = { "test" };
	int argc = 1;
	assert_true(strlen(options) < sizeof text);
	memcpy(text, options, strlen(options) + 1);
	for (char *save, *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	fo_opt_init(&g->set, fo_run_options, &g->run);
	fo_opt_read_args(&g->set, &argc, argv);
	must(fo_run_check(&g->set, &g->run));
	must(fo_pass_build_run(&g->p, &g->run));
	must(fo_unroll(&g->p, &g->u));
	fo_plan(&g->p, &g->u);
	fo_prune_waits(&g->p, &g->u);
}

void device_rig_step(struct device_rig *g, const char *name, const char *options)
{
	device_rig_rates(g, name);
	device_rig_build(g, options);
	must(fo_device_step(&g->s, &g->p, &g->u, &g->rates, -1));
}

void device_rig_end(struct device_rig *g)
{
	fo_device_step_fini(&g->s);
	fo_unrolled_fini(&g->u);
	fo_program_fini(&g->p);
	fo_opt_fini(&g->set);
	fo_catalogue_fini(&g->catalogue);
}
