#include "topo/measured.h"

static const char *const class_words[] = {
	[RATE_PRODUCT_FWD] = "product_fwd",
	[RATE_PRODUCT_INPUT] = "product_input",
	[RATE_PRODUCT_WEIGHT] = "product_weight",
	[RATE_ATTENTION_FWD] = "attention_fwd",
	[RATE_ATTENTION_BWD] = "attention_bwd",
	[RATE_NORM_FWD] = "norm_fwd",
	[RATE_NORM_BWD] = "norm_bwd",
	[RATE_GELU_FWD] = "gelu_fwd",
	[RATE_GELU_BWD] = "gelu_bwd",
	[RATE_SWIGLU_FWD] = "swiglu_fwd",
	[RATE_SWIGLU_BWD] = "swiglu_bwd",
	[RATE_ROPE] = "rope",
	[RATE_XENT] = "xent",
	[RATE_SUM_ROWS] = "sum_rows",
	[RATE_MOVED] = "moved",
	[RATE_OPTIMIZER] = "optimizer",
};

const char *topo_rate_class_word(enum rate_class class)
{
	return class_words[class];
}

void topo_measured_add_machine(struct measured *m, const struct measured_machine *machine)
{
	int i = 0;
	while (i < m->n_machines && (m->machines[i].agents != machine->agents ||
				     m->machines[i].threads != machine->threads ||
				     m->machines[i].low_precision != machine->low_precision))
		i++;
	if (i == MEASURED_MACHINES)
		return;
	m->machines[i] = *machine;
	m->n_machines += i == m->n_machines;
}

static bool is_same_kind(const struct measured_exchange *a, const struct measured_exchange *b)
{
	return a->transport == b->transport && a->op == b->op && a->group == b->group &&
	       a->crowd == b->crowd;
}

void topo_measured_add_exchange(struct measured *m, const struct measured_exchange *exchange)
{
	int i = 0;
	while (i < m->n_exchanges && !is_same_kind(&m->exchanges[i], exchange))
		i++;
	if (i == MEASURED_EXCHANGES)
		return;
	m->exchanges[i] = *exchange;
	m->n_exchanges += i == m->n_exchanges;
}
