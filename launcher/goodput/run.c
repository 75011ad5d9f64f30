/* run: the course of a simulated run. */
#include "launcher/goodput/run_inner.h"

#include <math.h>

double goodput_effective(const struct goodput_result *r)
{
	return r->seconds > 0 ? r->parts[GOODPUT_TRAINED] / r->seconds : 0;
}

static void meet_fault(struct run *r)
{
	switch (goodput_next_fault(r)->shows) {
	case SHOWS_PLANNED:
		goodput_stop_as_planned(r);
		break;
	case SHOWS_SLOW:
		goodput_become_slow(r);
		break;
	case SHOWS_NUMBERS:
		if (isinf(r->s->costs.numbers)) /* nobody finds them: the run goes on with them */
			goodput_take_fault(r, true);
		else
			goodput_recover(r);
		break;
	case SHOWS_CLOSED:
	case SHOWS_SILENT:
	case SHOWS_HANG:
	case SHOWS_COUNT:
		goodput_recover(r);
		break;
	}
}

/* Trains until something happens, and does what follows from it. */
static void go_on(struct run *r)
{
	double slow = goodput_slow_until(r),
	       back = r->left_out ? goodput_node_returns(r) : INFINITY;
	goodput_train(r, fmin(fmin(slow, back), fmin(r->next.at, goodput_end(r))));
	goodput_nodes_take(r);
	if (goodput_is_over(r) || goodput_regrow(r))
		return;
	if (r->now >= r->next.at)
		meet_fault(r);
	else if (r->now >= slow)
		goodput_leave_slow_node(r);
}

void goodput_run_record(const struct goodput_setup *s, uint64_t seed, struct goodput_history *h,
			struct goodput_result *out)
{
	struct run r = { .s = s, .out = out, .history = h, .free = s->spares, .exposed = -1 };
	*out = (struct goodput_result){ 0 };
	random_init(&r.dice, seed, 0);
	goodput_take_fault(&r, false); /* the first one is drawn */
	goodput_pass(&r, GOODPUT_START, s->costs.start + s->costs.respawn);
	while (!goodput_is_over(&r))
		go_on(&r);
	out->seconds = r.now;
	out->steps = r.step;
}

void goodput_run(const struct goodput_setup *s, uint64_t seed, struct goodput_result *out)
{
	goodput_run_record(s, seed, NULL, out);
}
