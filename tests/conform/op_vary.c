#include "tests/conform/op_vary.h"

#include "base/philox.h"

#include <string.h>

/* Numbers of one draw. */
struct dice {
	struct philox_key key;
	uint64_t at;
};

/* From lo to hi: as often a small one, or one beside a power of 2, as any. */
static int64_t roll(struct dice *d, int64_t lo, int64_t hi)
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

static bool flip(struct dice *d)
{
	return roll(d, 0, 1000) % 2;
}

static void vary_products(struct dice *r, struct dims *d)
{
	*d = (struct dims){
		.n = roll(r, 1, 300), .c = roll(r, 1, 300), .d = roll(r, 1, 300), .with = flip(r)
	};
}

/* Of a few rows means can cancel, and of a few columns gradients, to less than what rounding
 * takes. */
static void vary_norms(struct dice *r, struct dims *d)
{
	*d = (struct dims){ .n = roll(r, 16, 130), .c = roll(r, 7, 3000), .with = flip(r) };
}

static void vary_counts(struct dice *r, struct dims *d)
{
	*d = (struct dims){ .n = roll(r, 1, 90000),
			    .lo = (int32_t)roll(r, 0, 3),
			    .with = flip(r),
			    .fused = flip(r) };
}

static void vary_rows(struct dice *r, struct dims *d)
{
	static const float p[] = { 0, 0.1f, 0.5f };
	*d = (struct dims){ .n = roll(r, 1, 130), .c = roll(r, 1, 2000), .p = p[roll(r, 0, 2)] };
}

static void vary_rope(struct dice *r, struct dims *d)
{
	*d = (struct dims){ .n = roll(r, 1, 200),
			    .s = { .heads = (int)roll(r, 1, 8), .dim = 2 * (int)roll(r, 1, 64) } };
	d->c = d->s.heads * d->s.dim + roll(r, 0, 40);
	d->d = roll(r, 1, d->n);
}

static void vary_embed(struct dice *r, struct dims *d)
{
	*d = (struct dims){ .n = roll(r, 1, 400),
			    .d = roll(r, 1, 64),
			    .c = roll(r, 1, 400),
			    .lo = (int32_t)roll(r, 0, 60),
			    .with = flip(r) };
}

static void vary_xent(struct dice *r, struct dims *d)
{
	*d = (struct dims){ .n = roll(r, 1, 60),
			    .c = roll(r, 1, 6000),
			    .lo = (int32_t)roll(r, 0, 300) };
	d->d = d->lo + d->c + roll(r, 0, 300);
}

static void vary_attention(struct dice *r, struct dims *d)
{
	static const int dims[] = { 64, 128, 64, 128, 2, 8, 16, 40, 80, 96, 256 };
	int64_t q = roll(r, 1, 200), kv = roll(r, 1, 3), group = roll(r, 1, 4);
	bool whole = flip(r);
	*d = (struct dims){
		.fused = whole,
		.c = 8 * roll(r, 0, 1),
		.with = flip(r),
		.documents = flip(r),
		.p = roll(r, 0, 3) ? 0 : 0.2f,
		.s = { .batch = roll(r, 1, 3),
		       .q_len = q,
		       .k_len = whole ? q : roll(r, 1, 260),
		       .q_first = whole ? 0 : roll(r, 0, 200),
		       .k_first = whole ? 0 : roll(r, 0, 200),
		       .heads = (int)(kv * group),
		       .kv_heads = (int)kv,
		       .dim = dims[roll(r, 0, (int64_t)(sizeof dims / sizeof *dims) - 1)] }
	};
}

static void vary_experts(struct dice *r, struct dims *d)
{
	*d = (struct dims){
		.n = roll(r, 1, 300), .d = roll(r, 1, 64), .with = flip(r), .fused = flip(r)
	};
	d->lo = (int32_t)roll(r, 1, d->d < 8 ? d->d : 8);
}

/* Whole pieces of c tokens. */
static void vary_places(struct dice *r, struct dims *d)
{
	vary_experts(r, d);
	d->c = roll(r, 1, 500);
	d->n = d->c * roll(r, 1, 5);
}

static void vary_groups(struct dice *r, struct dims *d)
{
	vary_products(r, d);
	d->lo = (int32_t)roll(r, 1, 16);
}

static void vary_gather(struct dice *r, struct dims *d)
{
	*d = (struct dims){ .n = roll(r, 1, 200),
			    .c = roll(r, 1, 500),
			    .d = roll(r, 1, 200),
			    .lo = (int32_t)roll(r, 0, 30) };
}

static void vary_combine(struct dice *r, struct dims *d)
{
	*d = (struct dims){ .n = roll(r, 1, 150),
			    .c = roll(r, 1, 500),
			    .lo = (int32_t)roll(r, 1, 4),
			    .with = flip(r) };
}

/* clang-format off */
static const struct {
	const char *names; /* blanks around each */
	void (*vary)(struct dice *r, struct dims *d);
} varied[] = {
	{ " linear_fwd linear_bwd_input linear_bwd_weight linear_gelu_fwd linear_gelu_bwd ", vary_products },
	{ " layernorm_fwd layernorm_bwd rmsnorm_fwd rmsnorm_bwd ", vary_norms },
	{ " gelu_fwd gelu_bwd add accumulate widen narrow sgd adamw sqnorm xent_loss ", vary_counts },
	{ " swiglu_fwd swiglu_bwd add_bias sum_rows dropout ", vary_rows },
	{ " rope_fwd rope_bwd ", vary_rope },
	{ " embed_fwd embed_bwd ", vary_embed },
	{ " xent_max xent_exp xent_grad xent ", vary_xent },
	{ " attention_fwd attention_merge attention_bwd ", vary_attention },
	{ " grouped_fwd grouped_bwd_input grouped_bwd_weight ", vary_groups },
	{ " route_fwd route_bwd ", vary_experts },
	{ " route_count route_drop route_place route_loss ", vary_places },
	{ " gather_rows copy_rows ", vary_gather },
	{ " combine_fwd combine_bwd ", vary_combine },
};
/* clang-format on */

bool op_vary(const struct op_test *t, uint64_t number, struct dims *out)
{
	struct dice r = { philox_key(number, PHILOX_TEST, philox_item(t->name)), 0 };
	char name[40] = " ";
	strncat(name, t->name, sizeof name - 3);
	strcat(name, " ");
	for (size_t i = 0; i < sizeof varied / sizeof *varied; i++)
		if (strstr(varied[i].names, name)) {
			varied[i].vary(&r, out);
			return true;
		}
	return false;
}
