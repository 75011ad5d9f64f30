/* The patterns that cuDNN's double supports, and their execution. */
#include "tests/gpu/doubles/cudnn.h"

#include "tests/gpu/doubles/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The operations of attention: m product, x maximum, s sum, t transposition, i index, and the
 * pointwise ones by their signs, = a copy. Those in {} are there with documents, those in [] with a
 * mask, those in () if heads share a k/v head, those in ^$ with sums in any order. */
static const char forward_pattern[] = "m*{i>?}[ii>?]x-esl+/m";
static const char backward_pattern[] = "*s*m*{i>?}-[ii>?]etm(s)m-**tm(s)tm^=$";

size_t cudnn_width(cudnnDataType_t type)
{
	return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : 2;
}

/* --- What is supported -------------------------------------------------------------------- */

/* The bits of the parts in {}, () and ^$; that in [] has the bit after the first. */
enum { DOCUMENTS = 1, GROUPED = 4, ANY_ORDER = 8, PARTS = 16 };

static bool matches(const struct cudnn_program *p, const char *pattern, int parts)
{
	static const char opening[] = "{[(^", closing[] = "}])$";
	bool skipped = false;
	int at = 0;
	for (const char *c = pattern; *c; c++) {
		const char *bracket = strchr(opening, *c);
		if (bracket)
			skipped = !(parts & 1 << (bracket - opening));
		else if (strchr(closing, *c))
			skipped = false;
		else if (!skipped && (at == p->op_count || p->ops[at++].letter != *c))
			return false;
	}
	return at == p->op_count;
}

static bool two_bytes(const struct cudnn_tensor *t)
{
	return t->type == CUDNN_DATA_BFLOAT16 || t->type == CUDNN_DATA_HALF;
}

/* Rows of whole 16 bytes, whose elements have no gaps. */
static bool whole_rows(const struct cudnn_tensor *t)
{
	int gaps = 0;
	for (int i = 0; i < 4; i++)
		gaps += t->stride[i] != 1 && t->stride[i] % 8 != 0;
	return gaps == 0 && (t->stride[3] == 1 || t->stride[2] == 1) && t->align >= 16;
}

/* The first product's left side is q. */
static const struct cudnn_tensor *queries_of(const struct cudnn_program *p)
{
	for (int i = 0; i < p->op_count; i++)
		if (p->ops[i].letter == 'm')
			return &p->tensors[p->ops[i].x];
	return NULL;
}

static bool sizes_suit(const struct cudnn_program *p)
{
	const struct cudnn_tensor *q = queries_of(p);
	int64_t most = double_capability() / 10 == 9 ? 256 : 128;
	for (int i = 0; i < p->tensor_count; i++) {
		const struct cudnn_tensor *t = &p->tensors[i];
		if (!t->is_virtual && !t->by_value && t->type != CUDNN_DATA_FLOAT &&
		    t->type != CUDNN_DATA_INT32 && (t->type != q->type || !whole_rows(t)))
			return false;
	}
	return two_bytes(q) && q->size[3] % 8 == 0 && q->size[3] <= most;
}

/* Whether indices and what they are compared with are of 32 bits. */
static bool types_suit(const struct cudnn_program *p)
{
	for (int i = 0; i < p->op_count; i++) {
		const struct cudnn_op *op = &p->ops[i];
		if ((op->letter == 'i' && p->tensors[op->y].type != CUDNN_DATA_INT32) ||
		    (op->letter == '>' && (p->tensors[op->x].type != CUDNN_DATA_INT32 ||
					   p->tensors[op->b].type != CUDNN_DATA_INT32)))
			return false;
	}
	return true;
}

/* The engines that compute a backward pass on other devices have no mask of documents. */
enum cudnn_pass cudnn_pass_of(const struct cudnn_program *p)
{
	bool hopper = double_capability() / 10 == 9;
	if (!queries_of(p) || !sizes_suit(p) || !types_suit(p))
		return CUDNN_NEITHER;
	for (int parts = 0; parts < PARTS; parts++) {
		if (!(parts & (GROUPED | ANY_ORDER)) && matches(p, forward_pattern, parts))
			return CUDNN_FORWARD;
		if ((hopper || !(parts & DOCUMENTS)) && matches(p, backward_pattern, parts))
			return CUDNN_BACKWARD;
	}
	return CUDNN_NEITHER;
}

bool cudnn_has_any_order(const struct cudnn_program *p)
{
	return p->op_count && p->ops[p->op_count - 1].letter == '=';
}

int64_t cudnn_workspace_of(const struct cudnn_program *p, enum cudnn_pass pass)
{
	const struct cudnn_tensor *q = queries_of(p);
	if (pass != CUDNN_BACKWARD)
		return 256;
	int64_t k_len = 0, full = 0;
	for (int i = 0; i < p->op_count; i++) {
		const struct cudnn_tensor *x = &p->tensors[p->ops[i].x];
		if (p->ops[i].letter == 't' && x->is_virtual)
			k_len = x->size[3];
		if (p->ops[i].letter == 's' && i > 2)
			full += 2 * x->size[0] * x->size[1] * x->size[2] * x->size[3];
	}
	if (cudnn_has_any_order(p))
		return full + 256;
	return 2 * q->size[0] * q->size[1] * ((q->size[2] + 63) / 64 * 64) *
		       ((k_len + 127) / 128 * 128) +
	       full + 256;
}

/* --- Tensors ------------------------------------------------------------------------------ */

static int64_t count_of(const struct cudnn_tensor *t)
{
	return t->size[0] * t->size[1] * t->size[2] * t->size[3];
}

static float from_bits(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static float rounded(float x, cudnnDataType_t type)
{
	if (type == CUDNN_DATA_HALF)
		return (float)(_Float16)x;
	if (type != CUDNN_DATA_BFLOAT16 || isnan(x))
		return x;
	uint32_t bits = bits_of(x);
	return from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/* Index i of a dimension of `of`, in a tensor that repeats its elements or shares them. */
static int64_t place(int64_t i, int64_t of, int64_t size)
{
	return i / (of / size);
}

static int64_t offset_of(const struct cudnn_tensor *t, const int64_t at[4])
{
	return at[0] * t->stride[0] + at[1] * t->stride[1] + at[2] * t->stride[2] +
	       at[3] * t->stride[3];
}

static int64_t dense_of(const struct cudnn_tensor *t, const int64_t at[4])
{
	return ((at[0] * t->size[1] + at[1]) * t->size[2] + at[2]) * t->size[3] + at[3];
}

static float get(const struct cudnn_tensor *t, const int64_t at[4])
{
	if (t->by_value)
		return t->value;
	if (t->is_virtual) {
		if (!t->room)
			double_misuse("cuDNN: tensor %lld is read before it is written",
				      (long long)t->uid);
		return t->room[dense_of(t, at)];
	}
	int64_t o = offset_of(t, at);
	if (t->type == CUDNN_DATA_FLOAT)
		return ((const float *)t->at)[o];
	if (t->type == CUDNN_DATA_INT32)
		return (float)((const int32_t *)t->at)[o];
	if (t->type == CUDNN_DATA_HALF)
		return (float)((const _Float16 *)t->at)[o];
	return from_bits((uint32_t)((const uint16_t *)t->at)[o] << 16);
}

static void put(struct cudnn_tensor *t, const int64_t at[4], float x)
{
	x = rounded(x, t->type);
	if (t->is_virtual) {
		t->room[dense_of(t, at)] = x;
		return;
	}
	int64_t o = offset_of(t, at);
	if (t->type == CUDNN_DATA_FLOAT)
		((float *)t->at)[o] = x;
	else if (t->type == CUDNN_DATA_HALF)
		((_Float16 *)t->at)[o] = (_Float16)x;
	else
		((uint16_t *)t->at)[o] = (uint16_t)(bits_of(x) >> 16);
}

/* The element of `t` for the place `at` of a tensor of these sizes. */
static float get_for(const struct cudnn_tensor *t, const int64_t at[4], const int64_t sizes[4])
{
	int64_t own[4];
	for (int i = 0; i < 4; i++)
		own[i] = place(at[i], sizes[i], t->size[i]);
	return get(t, own);
}

static bool divides(const struct cudnn_tensor *small, const int64_t sizes[4])
{
	for (int i = 0; i < 4; i++)
		if (sizes[i] % small->size[i])
			return false;
	return true;
}

static bool next_place(int64_t at[4], const int64_t sizes[4])
{
	for (int i = 3; i >= 0; i--) {
		if (++at[i] < sizes[i])
			return true;
		at[i] = 0;
	}
	return false;
}

/* --- Operations --------------------------------------------------------------------------- */

static void fit(bool ok, const struct cudnn_op *op)
{
	if (!ok)
		double_misuse("cuDNN: the tensors of an operation '%c' do not fit", op->letter);
}

static void run_product(struct cudnn_program *p, const struct cudnn_op *op)
{
	const struct cudnn_tensor *a = &p->tensors[op->x], *b = &p->tensors[op->b];
	struct cudnn_tensor *c = &p->tensors[op->y];
	bool adds = !c->is_virtual && c->type == CUDNN_DATA_FLOAT;
	int64_t at[4] = { 0 }, depth = a->size[3];
	fit(b->size[2] == depth && a->size[2] == c->size[2] && b->size[3] == c->size[3] &&
		    a->size[0] == c->size[0] && a->size[1] == c->size[1] &&
		    b->size[0] == c->size[0] && c->size[1] % b->size[1] == 0,
	    op);
	do {
		float sum = 0;
		int64_t left[4] = { at[0], at[1], at[2], 0 };
		int64_t right[4] = { at[0], place(at[1], c->size[1], b->size[1]), 0, at[3] };
		for (int64_t i = 0; i < depth; i++) {
			left[3] = right[2] = i;
			sum += get(a, left) * get(b, right);
		}
		/* half of a last bit of bf16 more with each turn, as another order of sums may give */
		float other = c->is_virtual ? sum : sum * (1 + (float)(p->turn % 4) / 512);
		/* dq with sums in any order: the blocks add to what is there */
		put(c, at, adds ? get(c, at) + other : other);
	} while (next_place(at, c->size));
}

static float pointwise(const struct cudnn_op *op, float x, float b, float t, int64_t index)
{
	switch (op->letter) {
	case '*':
		return x * b;
	case '+':
		return x + b;
	case '-':
		return x - b;
	case '/':
		return x / b;
	case 'e':
		return expf(x);
	case 'l':
		return logf(x);
	case 'i':
		return (float)index;
	case '=':
		return x;
	case '>':
		return x >= b;
	default:
		return t != 0 ? x : b;
	}
}

static void run_pointwise(struct cudnn_program *p, const struct cudnn_op *op)
{
	const int inputs[] = { op->x, op->b, op->t };
	struct cudnn_tensor *y = &p->tensors[op->y];
	int64_t at[4] = { 0 };
	for (int i = 0; i < 3; i++)
		fit(inputs[i] < 0 || divides(&p->tensors[inputs[i]], y->size), op);
	do {
		float in[3] = { 0 };
		for (int i = 0; i < 3; i++)
			if (inputs[i] >= 0 && op->letter != 'i')
				in[i] = get_for(&p->tensors[inputs[i]], at, y->size);
		put(y, at, pointwise(op, in[0], in[1], in[2], at[op->axis]));
	} while (next_place(at, y->size));
}

/* Of the first keys of a row. */
enum { TILE = 16 };

static void check_first_tiles(const struct cudnn_tensor *x)
{
	int64_t sizes[4] = { x->size[0], x->size[1], x->size[2], 1 }, at[4] = { 0 };
	do {
		bool any = false; /* NaN is a score, too */
		int64_t key[4] = { at[0], at[1], at[2], 0 };
		for (; key[3] < x->size[3] && key[3] < TILE; key[3]++)
			any |= get(x, key) != -INFINITY;
		if (!any)
			double_misuse("cuDNN: row %lld has a first tile without a score",
				      (long long)at[2]);
	} while (next_place(at, sizes));
}

/* In fp32, then rounded once. */
static void run_reduction(struct cudnn_program *p, const struct cudnn_op *op)
{
	const struct cudnn_tensor *x = &p->tensors[op->x];
	struct cudnn_tensor *y = &p->tensors[op->y], sums = *y;
	bool max = op->letter == 'x';
	int64_t at[4] = { 0 }, own[4];
	fit(divides(y, x->size), op);
	sums.is_virtual = true;
	sums.type = CUDNN_DATA_FLOAT;
	sums.room = malloc((size_t)count_of(y) * sizeof(float));
	if (max)
		check_first_tiles(x);
	for (int64_t i = 0; i < count_of(y); i++)
		sums.room[i] = max ? -INFINITY : 0;
	do {
		for (int i = 0; i < 4; i++)
			own[i] = place(at[i], x->size[i], y->size[i]);
		float old = get(&sums, own), new = get(x, at);
		put(&sums, own, max ? fmaxf(old, new) : old + new);
	} while (next_place(at, x->size));
	memset(at, 0, sizeof at);
	do
		put(y, at, get(&sums, at));
	while (next_place(at, y->size));
	free(sums.room);
}

static void run_transposition(struct cudnn_program *p, const struct cudnn_op *op)
{
	const struct cudnn_tensor *x = &p->tensors[op->x];
	struct cudnn_tensor *y = &p->tensors[op->y];
	int64_t at[4] = { 0 };
	fit(x->size[0] == y->size[0] && x->size[1] == y->size[1] && x->size[2] == y->size[3] &&
		    x->size[3] == y->size[2] && x->stride[2] == y->stride[3] &&
		    x->stride[3] == y->stride[2],
	    op);
	do {
		const int64_t from[4] = { at[0], at[1], at[3], at[2] };
		put(y, at, get(x, from));
	} while (next_place(at, y->size));
}

static void run_op(struct cudnn_program *p, const struct cudnn_op *op)
{
	struct cudnn_tensor *y = &p->tensors[op->y];
	if (y->is_virtual && y->room)
		double_misuse("cuDNN: tensor %lld is written twice", (long long)y->uid);
	if (y->is_virtual)
		y->room = malloc((size_t)count_of(y) * sizeof(float));
	if (op->letter == 'm')
		run_product(p, op);
	else if (op->letter == 'x' || op->letter == 's')
		run_reduction(p, op);
	else if (op->letter == 't')
		run_transposition(p, op);
	else
		run_pointwise(p, op);
}

bool cudnn_run(void *arg)
{
	static int turns;
	struct cudnn_program *p = malloc(sizeof *p); /* a graph runs arg again */
	memcpy(p, arg, sizeof *p);
	p->turn = cudnn_has_any_order(p) ? turns++ : 0;
	double_spend(cudnn_has_any_order(p) ? double_cudnn_any_seconds : double_cudnn_seconds);
	memset(p->workspace, POISON, (size_t)p->workspace_bytes);
	for (int i = 0; i < p->op_count; i++)
		run_op(p, &p->ops[i]);
	for (int i = 0; i < p->tensor_count; i++)
		free(p->tensors[i].room);
	free(p);
	return true;
}
