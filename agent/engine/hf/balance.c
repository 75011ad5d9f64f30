#include "agent/engine/hf/balance.h"

#include "base/json_member.h"

#include <math.h>
#include <stdbool.h>

static const char coefficient[] = "router_aux_loss_coef", switched[] = "output_router_logits";

/* the default of transformers */
static const double COEFFICIENT = 0.001;

static double scaled(double coef, int64_t layers, int64_t top)
{
	return coef * (double)top / (double)layers;
}

int hf_balance_read(const json_t *root, const char *name, int64_t layers, int64_t top,
		    double *aux_loss, struct err *e)
{
	const json_t *coef = json_object_get(root, coefficient),
		     *on = json_object_get(root, switched);
	if (json_member_given(coef) &&
	    (!json_is_number(coef) || !isfinite(json_number_value(coef))))
		return err_set(e, ERR_CORRUPT, "%s: %s is not a number", name, coefficient);
	if (json_member_given(on) && !json_is_boolean(on))
		return err_set(e, ERR_CORRUPT, "%s: %s is neither true nor false", name, switched);
	*aux_loss = json_is_true(on) ? scaled(json_member_given(coef) ? json_number_value(coef)
								      : COEFFICIENT,
					      layers, top)
				     : 0;
	return 0;
}

/* Returns the coefficient from which import computes exactly aux_loss. If there is none, the
 * coefficient is rounded down, so that import never computes more than aux_loss. */
static double unscaled(double aux_loss, int64_t layers, int64_t top)
{
	double coef = aux_loss * (double)layers / (double)top;
	const double tries[] = { coef, nextafter(coef, INFINITY), nextafter(coef, 0) };
	for (int i = 0; i < (int)(sizeof tries / sizeof *tries); i++)
		if (scaled(tries[i], layers, top) == aux_loss)
			return tries[i];
	return tries[2];
}

int hf_balance_write(const struct job *job, json_t *config)
{
	double aux = job->model.aux_loss;
	int bad = json_object_set_new(config, switched, json_boolean(aux > 0));
	bad |= json_object_set_new(
		config, coefficient,
		json_real(unscaled(aux, job->model.layers, job->model.experts_per_token)));
	return bad ? -1 : 0;
}
