#include "agent/engine/train/bad_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The standard deviation of a normal distribution over its MAD. */
static const double mad_to_deviation = 1.4826;
/* The least deviations: of the loss over its median, and of the norm's logarithm. */
static const double least_loss = 0.02, least_norm = 0.25;

void train_bad_init(struct bad_numbers *b, double z, int64_t window)
{
	*b = (struct bad_numbers){ .z = z };
	b->window = window < 2 ? 2 : window > BAD_WINDOW_MAX ? BAD_WINDOW_MAX : (int)window;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, by_value);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* True: x is above every value of the series. It spares the medians in nearly all steps. */
static bool is_highest(const struct bad_series *s, double x)
{
	for (int i = 0; i < s->n; i++)
		if (s->last[i] >= x)
			return false;
	return true;
}

/* The z of a value; 0: it is no spike. `relative`: `least` is a share of the median. */
static double judge(const struct bad_numbers *b, const struct bad_series *s, double x, double least,
		    bool relative, double *usual)
{
	double room[BAD_WINDOW_MAX];
	if (!(b->z > 0) || s->n < (b->window + 1) / 2 || !is_highest(s, x))
		return 0;
	memcpy(room, s->last, (size_t)s->n * sizeof *room);
	double middle = median(room, s->n);
	for (int i = 0; i < s->n; i++)
		room[i] = fabs(s->last[i] - middle);
	double deviation = mad_to_deviation * median(room, s->n);
	deviation = fmax(deviation, relative ? least * fabs(middle) : least);
	*usual = middle;
	return deviation > 0 && x - middle > b->z * deviation ? (x - middle) / deviation : 0;
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
	if ((z = judge(b, &b->loss, loss, least_loss, true, &usual)) > 0) {
		*out = (struct bad_number){ "loss", loss, usual, z };
		return true;
	}
	if ((z = judge(b, &b->norm, log_norm(norm), least_norm, false, &usual)) > 0) {
		*out = (struct bad_number){ "gradient norm", norm, exp(usual), z };
		return true;
	}
	return false;
}

static void add(struct bad_series *s, int window, double x)
{
	s->last[s->next] = x;
	s->next = (s->next + 1) % window;
	s->n += s->n < window;
}

void train_bad_note(struct bad_numbers *b, double loss, double norm)
{
	add(&b->loss, b->window, loss);
	add(&b->norm, b->window, log_norm(norm));
}
