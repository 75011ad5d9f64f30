#include "agent/engine/train/bad_numbers.h"

#include <math.h>

/* The least deviations: of the loss over its median, and of the norm's logarithm. */
static const double least_loss = 0.02, least_norm = 0.25;

void train_bad_init(struct bad_numbers *b, double z, int64_t window)
{
	*b = (struct bad_numbers){ .z = z };
	b->window = window < 2 ? 2 : window > BAD_WINDOW_MAX ? BAD_WINDOW_MAX : (int)window;
}

/* Whether so many good steps are known that one can be a spike. */
static bool known(const struct bad_numbers *b, const struct recent *r)
{
	return b->z > 0 && r->n >= (b->window + 1) / 2;
}

/* A norm of 0 is possible; it stays far below all others. */
static double log_norm(double norm)
{
	return log(fmax(norm, 1e-30));
}

bool train_bad_judge(const struct bad_numbers *b, double loss, double norm, struct bad_number *out)
{
	double usual = NAN, z;
	if (!isfinite(loss) || !isfinite(norm)) {
		*out = (struct bad_number){ .what = isfinite(loss) ? "gradient norm" : "loss",
					    .value = isfinite(loss) ? norm : loss,
					    .usual = NAN };
		return true;
	}
	if (known(b, &b->loss) &&
	    (z = recent_above_share(&b->loss, loss, b->z, least_loss, &usual)) > 0) {
		*out = (struct bad_number){ "loss", loss, usual, z };
		return true;
	}
	if (known(b, &b->norm) &&
	    (z = recent_above(&b->norm, log_norm(norm), b->z, least_norm, &usual)) > 0) {
		*out = (struct bad_number){ "gradient norm", norm, exp(usual), z };
		return true;
	}
	return false;
}

void train_bad_note(struct bad_numbers *b, double loss, double norm)
{
	recent_add(&b->loss, b->window, loss);
	recent_add(&b->norm, b->window, log_norm(norm));
}
