#include "plan/cost/chip.h"

#include "plan/spec/job/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The smallest ratio of two neighbouring points of a curve of products, which come in many
 * shapes. */
#define PRODUCTS_APART 3.0
/* The start of an operation takes at most this share of the shortest measured time. */
#define START_SHARE 0.5

struct point {
	double x, y;
};

enum measured_storage cost_chip_storage(const struct measured_chip *chip, bool low_precision)
{
	for (int i = 0; low_precision && i < chip->n_ops; i++)
		if (chip->ops[i].storage == MEASURED_BF16)
			return MEASURED_BF16;
	return low_precision ? MEASURED_FP16 : MEASURED_FP32;
}

double cost_chip_flops(const struct measured_chip *chip)
{
	double most = 0;
	for (int i = 0; chip && i < chip->n_ops; i++)
		if (chip->ops[i].class == RATE_PRODUCT_FWD && chip->ops[i].storage != MEASURED_FP8)
			most = fmax(most,
				    topo_measured_chip_work(&chip->ops[i]) / chip->ops[i].seconds);
	return most;
}

/* --- Curves --- */

static int by_x(const void *a, const void *b)
{
	const struct point *p = a, *q = b;
	return (p->x > q->x) - (p->x < q->x);
}

/* Points that are less than `apart` times the first of them count by their mean. More points than
 * a curve holds are left out at the end. */
static void curve_through(struct point *points, int n, double apart, struct rate_curve *c)
{
	*c = (struct rate_curve){ 0 };
	qsort(points, (size_t)n, sizeof *points, by_x);
	for (int i = 0, in; i < n && c->n < RATE_POINTS; i += in) {
		double x = 0, y = 0;
		for (in = 0; i + in < n && points[i + in].x <= apart * points[i].x; in++) {
			x += log(points[i + in].x);
			y += points[i + in].y;
		}
		c->x[c->n] = exp(x / in);
		c->rate[c->n++] = y / in;
	}
}

/* The rate with which the model, which adds m->op, gives the measured seconds. */
static double rate_of(const struct cost_machine *m, const struct measured_chip_op *op)
{
	return topo_measured_chip_work(op) / (op->seconds - m->op);
}

static double model_product(const struct cost_machine *m, const struct measured_chip_op *op,
			    double width)
{
	return cost_machine_product(m, op->class, op->size[0], op->size[1], op->size[2], width);
}

static double model_attention(const struct cost_machine *m, const struct measured_chip_op *op)
{
	return cost_machine_attention(m, ATTENTION_MUSTER, op->class, op->size[2], op->size[0],
				      op->size[1]);
}

/* What a curve is made of. */
struct wanted {
	enum rate_class class;
	enum measured_storage storage;
	double width; /* products: bytes of an element */
	int dim;      /* attention: cost_chip_dim */
};

static bool is_wanted(const struct measured_chip_op *op, const struct wanted *w)
{
	bool attention = op->class == RATE_ATTENTION_FWD || op->class == RATE_ATTENTION_BWD;
	return op->class == w->class && op->storage == w->storage &&
	       (!attention || cost_chip_dim(op->size[1]) == w->dim);
}

static struct point point_of(const struct cost_machine *m, const struct measured_chip_op *op,
			     const struct wanted *w)
{
	double work = topo_measured_chip_work(op);
	if (op->class <= RATE_PRODUCT_WEIGHT)
		return (struct point){ work, op->seconds / model_product(m, op, w->width) };
	if (op->class <= RATE_ATTENTION_BWD)
		return (struct point){ op->size[0], op->seconds / model_attention(m, op) };
	return (struct point){ work, rate_of(m, op) };
}

/* A curve is left as it is if nothing was measured for it. */
static void measure(const struct measured_chip *chip, const struct cost_machine *model,
		    const struct wanted *w, struct rate_curve *out)
{
	struct point points[CHIP_OPS];
	int n = 0;
	for (int i = 0; i < chip->n_ops; i++)
		if (is_wanted(&chip->ops[i], w))
			points[n++] = point_of(model, &chip->ops[i], w);
	if (n)
		curve_through(points, n, w->class <= RATE_PRODUCT_WEIGHT ? PRODUCTS_APART : 1, out);
}

/* Products in fp32 beside those of 2 bytes: their plain rate. */
static void measure_fp32(const struct measured_chip *chip, struct cost_machine *m)
{
	struct point points[CHIP_OPS];
	int n = 0;
	for (int i = 0; i < chip->n_ops; i++) {
		const struct measured_chip_op *op = &chip->ops[i];
		if (op->storage == MEASURED_FP32 && op->class == RATE_PRODUCT_FWD)
			points[n++] = (struct point){ topo_measured_chip_work(op), rate_of(m, op) };
	}
	if (n)
		curve_through(points, n, PRODUCTS_APART, &m->fp32_products);
}

static double shortest(const struct measured_chip *chip)
{
	double least = INFINITY;
	for (int i = 0; i < chip->n_ops; i++)
		least = fmin(least, chip->ops[i].seconds);
	return least;
}

void cost_chip_apply(const struct measured_chip *chip, bool low_precision, struct cost_machine *m)
{
	struct wanted w = { .storage = cost_chip_storage(chip, low_precision),
			    .width = low_precision ? 2 : 4 };
	m->op = fmin(m->op, START_SHARE * shortest(chip));
	if (m->units < 1)
		m->units = chip->units;
	for (int class = RATE_NORM_FWD; class < RATE_CLASSES; class ++) {
		w.class = (enum rate_class) class;
		measure(chip, m, &w, &m->rates[class]);
	}
	/* The ratios are to the model with the measured memory, which bounds products. */
	struct cost_machine *model = malloc(sizeof *model);
	if (!model)
		return;
	*model = *m;
	for (int form = 0; form <= RATE_PRODUCT_WEIGHT; form++) {
		w.class = (enum rate_class)form;
		measure(chip, model, &w, &m->ratios.product[form]);
		measure(chip, model, &(struct wanted){ w.class, MEASURED_FP8, 1, 0 },
			&m->ratios.eight[form]);
	}
	for (int form = 0; form < 2; form++)
		for (w.dim = 0; w.dim < CHIP_DIMS; w.dim++) {
			w.class = form ? RATE_ATTENTION_BWD : RATE_ATTENTION_FWD;
			measure(chip, model, &w, &m->ratios.attention[form][w.dim]);
		}
	free(model);
	if (low_precision)
		measure_fp32(chip, m);
	if (chip->to_host > 0 && chip->from_host > 0)
		m->host = fmin(chip->to_host, chip->from_host);
}

/* --- For people --- */

/* Each has all classes from `first` to `last`. */
static const struct group {
	const char *word;
	enum rate_class first, last;
} groups[] = {
	{ "products", RATE_PRODUCT_FWD, RATE_PRODUCT_WEIGHT },
	{ "attention", RATE_ATTENTION_FWD, RATE_ATTENTION_BWD },
	{ "norms", RATE_NORM_FWD, RATE_NORM_BWD },
	{ "activations", RATE_GELU_FWD, RATE_ROPE },
	{ "cross-entropy", RATE_XENT, RATE_XENT },
	{ "copies and sums", RATE_SUM_ROWS, RATE_MOVED },
	{ "optimizer", RATE_OPTIMIZER, RATE_OPTIMIZER },
};
enum { GROUPS = sizeof groups / sizeof *groups };

static bool has_class(const struct measured_chip *chip, enum measured_storage storage, int class)
{
	for (int i = 0; i < chip->n_ops; i++)
		if (chip->ops[i].storage == storage && (int)chip->ops[i].class == class)
			return true;
	return false;
}

static bool has_all(const struct measured_chip *chip, enum measured_storage storage,
		    const struct group *g)
{
	for (int class = (int)g->first; class <= (int)g->last; class ++)
		if (!has_class(chip, storage, class))
			return false;
	return true;
}

/* Appends the names of what was measured, or of what was not. */
static void list_groups(const struct node_kind *k, const struct job *job, bool measured,
			struct buf *out)
{
	const struct measured_chip *chip = k->chip;
	enum measured_storage storage = cost_chip_storage(chip, job->precision.dtype != DTYPE_FP32);
	const char *between = " ";
	bool rest[] = { has_all(chip, MEASURED_FP8, &groups[0]),
			chip->to_host > 0 && chip->from_host > 0, k->measured != NULL },
	     matters[] = { job->precision.fp8 != FP8_OFF, true, k->devices > 1 };
	static const char *const words[] = { "8-bit products", "copies to the host",
					     "transfers inside a node" };
	for (int i = 0; i < GROUPS; i++) {
		if (has_all(chip, storage, &groups[i]) != measured)
			continue;
		buf_printf(out, "%s%s", between, groups[i].word);
		between = ", ";
	}
	for (int i = 0; i < (int)(sizeof rest / sizeof *rest); i++) {
		if (!matters[i] || rest[i] != measured)
			continue;
		buf_printf(out, "%s%s", between, words[i]);
		between = ", ";
	}
	if (*between == ' ')
		buf_puts(out, " nothing");
}

void cost_chip_text(const struct node_kind *k, const struct job *job, struct buf *out)
{
	buf_printf(out, "%s, measured in %s on %s:", k->chip->name,
		   topo_measured_storage_word(
			   cost_chip_storage(k->chip, job->precision.dtype != DTYPE_FP32)),
		   k->chip->date);
	list_groups(k, job, true, out);
	buf_puts(out, "; published:");
	list_groups(k, job, false, out);
}
