/* Memory of Flatout's own programs, planned by a floor above: known to the byte, but for what libraries hold. */
#include "predict/predict.h"

void fo_predict_planned(struct fo_predict_step *s, const double part[FO_PREDICT_MEMORIES])
{
	double sum = 0;
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++) {
		if (i == FO_PREDICT_OVERHEAD)
			continue;
		s->memory[i] = part[i];
		s->memory_range[i] = fo_range(part[i]);
		sum += part[i];
	}
	const struct fo_range held = s->memory_range[FO_PREDICT_OVERHEAD];
	s->bytes = sum + s->memory[FO_PREDICT_OVERHEAD];
	s->bytes_range = (struct fo_range){ sum + held.low, sum + held.high };
	s->planned = true;
}
