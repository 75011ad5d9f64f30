#include "tests/conform/op_vary.h"

#include "base/philox.h"

/* The random stream of one set of sizes. */
struct op_random {
	struct philox_key key;
	uint64_t at;
};

/* A size from lo to hi. A third of the sizes are close to a power of 2, a third are small, and a
 * third are any. */
static int64_t draw_size(struct op_random *d, int64_t lo, int64_t hi)
{
	uint32_t r[4];
	philox4(d->key, d->at++, r);
	int64_t x = lo + (int64_t)(r[0] % (uint64_t)(hi - lo + 1));
	if (r[1] % 3 == 0)
		x = ((int64_t)1 << r[2] % 18) + (int64_t)(r[3] % 3) - 1;
	else if (r[1] % 3 == 1)
		x = lo + (int64_t)(r[2] % 20);
	return x < lo ? lo : x > hi ? hi : x;
}

static bool draw_bool(struct op_random *d)
{
	return draw_size(d, 0, 1000) % 2;
}

void vary_products(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 300),
			    .c = draw_size(r, 1, 300),
			    .d = draw_size(r, 1, 300),
			    .with = draw_bool(r) };
}

/* With few rows, means can cancel to less than the rounding error. With few columns, gradients
 * can. */
void vary_norms(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 16, 130),
			    .c = draw_size(r, 7, 3000),
			    .with = draw_bool(r) };
}

void vary_counts(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 90000),
			    .lo = (int32_t)draw_size(r, 0, 3),
			    .with = draw_bool(r),
			    .fused = draw_bool(r) };
}

void vary_rows(struct op_random *r, struct dims *d)
{
	static const float p[] = { 0, 0.1f, 0.5f };
	*d = (struct dims){ .n = draw_size(r, 1, 130),
			    .c = draw_size(r, 1, 2000),
			    .p = p[draw_size(r, 0, 2)] };
}

void vary_rope(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 200),
			    .s = { .heads = (int)draw_size(r, 1, 8),
				   .dim = 2 * (int)draw_size(r, 1, 64) } };
	d->c = d->s.heads * d->s.dim + draw_size(r, 0, 40);
	d->d = draw_size(r, 1, d->n);
}

void vary_embed(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 400),
			    .d = draw_size(r, 1, 64),
			    .c = draw_size(r, 1, 400),
			    .lo = (int32_t)draw_size(r, 0, 60),
			    .with = draw_bool(r) };
}

void vary_xent(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 60),
			    .c = draw_size(r, 1, 6000),
			    .lo = (int32_t)draw_size(r, 0, 300) };
	d->d = d->lo + d->c + draw_size(r, 0, 300);
	d->with = draw_bool(r);
}

void vary_attention(struct op_random *r, struct dims *d)
{
	static const int dims[] = { 64, 128, 64, 128, 2, 8, 16, 40, 80, 96, 256 };
	int64_t q = draw_size(r, 1, 200), kv = draw_size(r, 1, 3), group = draw_size(r, 1, 4);
	bool whole = draw_bool(r);
	*d = (struct dims){
		.fused = whole,
		.c = 8 * draw_size(r, 0, 1),
		.with = draw_bool(r),
		.documents = draw_bool(r),
		.p = draw_size(r, 0, 3) ? 0 : 0.2f,
		.s = { .batch = draw_size(r, 1, 3),
		       .q_len = q,
		       .k_len = whole ? q : draw_size(r, 1, 260),
		       .q_first = whole ? 0 : draw_size(r, 0, 200),
		       .k_first = whole ? 0 : draw_size(r, 0, 200),
		       .heads = (int)(kv * group),
		       .kv_heads = (int)kv,
		       .dim = dims[draw_size(r, 0, (int64_t)(sizeof dims / sizeof *dims) - 1)] }
	};
}

void vary_experts(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 300),
			    .d = draw_size(r, 1, 64),
			    .with = draw_bool(r),
			    .fused = draw_bool(r) };
	d->lo = (int32_t)draw_size(r, 1, d->d < 8 ? d->d : 8);
}

/* n is a multiple of c, the number of tokens in a piece. */
void vary_places(struct op_random *r, struct dims *d)
{
	vary_experts(r, d);
	d->c = draw_size(r, 1, 500);
	d->n = d->c * draw_size(r, 1, 5);
}

void vary_groups(struct op_random *r, struct dims *d)
{
	vary_products(r, d);
	d->lo = (int32_t)draw_size(r, 1, 16);
}

void vary_gather(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 200),
			    .c = draw_size(r, 1, 500),
			    .d = draw_size(r, 1, 200),
			    .lo = (int32_t)draw_size(r, 0, 30) };
}

void vary_combine(struct op_random *r, struct dims *d)
{
	*d = (struct dims){ .n = draw_size(r, 1, 150),
			    .c = draw_size(r, 1, 500),
			    .lo = (int32_t)draw_size(r, 1, 4),
			    .with = draw_bool(r) };
}

bool op_vary(const struct op_test *t, uint64_t number, struct dims *out)
{
	struct op_random r = { philox_key(number, PHILOX_TEST, philox_item(t->name)), 0 };
	if (t->vary)
		t->vary(&r, out);
	return t->vary != NULL;
}
