#include "agent/engine/train/bad_numbers.h"

#include <math.h>

/* The least deviations: of the loss over its median, and of the norm's logarithm. */
static const double least_loss = 0.02, least_norm = 0.25;

void train_bad_init(struct bad_numbers *b, double z, int64_t window)
{
	*b = (struct bad_numbers){ .z = z, .loss_limit = INFINITY, .norm_limit = INFINITY };
	b->window = window < 2 ? 2 : window > BAD_WINDOW_MAX ? BAD_WINDOW_MAX : (int)window;
}

/* A norm that the window has reached stays below the limit, which is computed from its logarithm. */
static const double rounded_up = 1 + 1e-12;

/* A norm of 0 is possible; it stays far below all others. */
static double log_norm(double norm)
{
	return log(fmax(norm, 1e-30));
}

static struct recent_bound bound_of_loss(const struct bad_numbers *b)
{
	return recent_bound(&b->loss, b->z, 0, least_loss);
}

static struct recent_bound bound_of_norm(const struct bad_numbers *b)
{
	return recent_bound(&b->norm, b->z, least_norm, 0);
}

bool train_bad_judge(const struct bad_numbers *b, double loss, double norm, struct bad_number *out)
{
	if (!isfinite(loss) || !isfinite(norm)) {
		*out = (struct bad_number){ .what = isfinite(loss) ? "gradient norm" : "loss",
					    .value = isfinite(loss) ? norm : loss,
					    .usual = NAN };
		return true;
	}
	if (loss > b->loss_limit) {
		struct recent_bound s = bound_of_loss(b);
		*out = (struct bad_number){ "loss", loss, s.usual, (loss - s.usual) / s.deviation };
		return true;
	}
	if (norm > b->norm_limit) {
		struct recent_bound s = bound_of_norm(b);
		*out = (struct bad_number){ "gradient norm", norm, exp(s.usual),
					    (log_norm(norm) - s.usual) / s.deviation };
		return true;
	}
	return false;
}

void train_bad_note(struct bad_numbers *b, double loss, double norm)
{
	recent_add(&b->loss, b->window, loss);
	recent_add(&b->norm, b->window, log_norm(norm));
	if (!(b->z > 0) || b->loss.n < (b->window + 1) / 2)
		return;
	b->loss_limit = bound_of_loss(b).limit;
	b->norm_limit = exp(bound_of_norm(b).limit) * rounded_up;
}
