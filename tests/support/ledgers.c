#include "support/ledgers.h"

#include "diagnose/diagnose.h"
#include "support/must.h"

void ledgers_of(const char *dir, struct ledger_of_rank *rank, int ranks)
{
	struct fo_trace_set set;
	struct fo_diagnosis d;
	must(fo_trace_set_open(&set, &dir, 1));
	must(fo_diagnose(&d, &set, &(struct fo_diagnose_options){ 0 }));
	assert_int_equal(d.ranks, ranks);
	for (int r = 0; r < ranks; r++) {
		assert_int_equal(d.rank[r].devices, 1);
		const struct fo_ledger *l = &d.rank[r].device[0].total;
		rank[r] = (struct ledger_of_rank){ l->comp_ns, l->exposed_comm_ns, l->exposed_wait_ns,
						   l->exposed_transfer_ns, l->exposed_bubble_ns };
	}
	fo_diagnosis_fini(&d);
	fo_trace_set_fini(&set);
}
