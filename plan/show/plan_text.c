/*
 * Prints the plan as plain UTF-8 text, 80 columns where names allow it; no colours.
 */
#include "base/human.h"
#include "plan/cost/chip.h"
#include "plan/search/fit.h"
#include "plan/show/rank_map.h"
#include "plan/show/placement.h"
#include "plan/show/missing.h"
#include "plan/show/program.h"
#include "plan/show/train_time.h"
#include "plan/memory.h"
#include "plan/peak.h"
#include "plan/plan.h"
#include "plan/show/plan.h"
#include "plan/layout_text.h"
#include "plan/show/sureness.h"
#include "plan/spec/model/activations.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* If there are many lines of stages, the first and the last ones are shown. */
enum { BAR = 20, FULL_BAR = 60, LAYERS_MIN = 9, STAGES_FIRST = 8, STAGES_LAST = 3 };

/* The text has nine columns. */
static const char *seconds(double s, char out[HUMAN])
{
	static const struct {
		double least, scale;
		const char *unit;
	} forms[] = {
		{ 1, 1, " s" },
		{ 1e-3, 1e3, "ms" },
		{ 0, 1e6, "µs" },
	};
	int f = 0;
	while (s < forms[f].least)
		f++;
	s *= forms[f].scale;
	snprintf(out, HUMAN, "%6.*f %s", s < 10 ? 2 : s < 100 ? 1 : 0, s, forms[f].unit);
	return out;
}

static int least_threads(const struct plan *p)
{
	int least = p->threads;
	for (int i = 0; i < p->world; i++)
		least = p->ranks[i].threads < least ? p->ranks[i].threads : least;
	return least;
}

/* Prints "2 to " before the largest number if replicas are unequal. */
static void print_micros(const struct plan *p, struct buf *out)
{
	int least = p->micros;
	for (int i = 0; i < p->layout.dp; i++)
		least = p->shares[i].micros < least ? p->shares[i].micros : least;
	if (least < p->micros)
		buf_printf(out, "%d to ", least);
}

/* Prints in one line what the job asks for beyond the defaults; nothing if there is nothing. */
static void print_ways(const struct job *job, struct buf *out)
{
	struct buf ways = BUF_INIT;
	if (job->parallel.zero)
		buf_printf(&ways, ", ZeRO %" PRId64 "%s", job->parallel.zero,
			   job->parallel.zero_shard == ZERO_SHARD_NODE ? " inside nodes" : "");
	if (job->parallel.sp)
		buf_puts(&ways, ", sequence parallel");
	if (job->parallel.sync == SYNC_SERVER)
		buf_printf(&ways, ", parameter server (staleness %" PRId64 ")",
			   job->parallel.staleness);
	if (job->recompute.mode != RECOMPUTE_NONE)
		buf_printf(&ways, ", %s recomputation",
			   job_word(job, offsetof(struct job, recompute.mode)));
	if (job->recompute.mode != RECOMPUTE_NONE && job->recompute.every > 1)
		buf_printf(&ways, " of one layer in %" PRId64, job->recompute.every);
	if (job->precision.dtype != DTYPE_FP32)
		buf_printf(&ways, ", %s", job_word(job, offsetof(struct job, precision.dtype)));
	if (job->precision.fp8 != FP8_OFF)
		buf_printf(&ways, ", fp8 %s", job_word(job, offsetof(struct job, precision.fp8)));
	if (job->offload.activations || job->offload.optimizer)
		buf_printf(&ways, ", offloaded%s%s%s",
			   job->offload.activations ? " activations" : "",
			   job->offload.activations && job->offload.optimizer ? " and" : "",
			   job->offload.optimizer ? " optimizer state" : "");
	if (*buf_str(&ways))
		buf_printf(out, "  with      %s\n", buf_str(&ways) + 2);
	buf_fini(&ways);
}

/* "  layout    8 ranks = tp 2 × dp 4, 3 threads each" */
static void print_layout(const struct plan *p, struct buf *out)
{
	int threads = least_threads(p);
	buf_printf(out, "  layout    %d rank%s = ", p->world, human_s(p->world));
	plan_print_degrees(&p->layout, " × ", out);
	if (p->layout.ep > 1)
		buf_printf(out, ", ep %d", p->layout.ep);
	if (threads < p->threads)
		buf_printf(out, ", %d to %d threads each\n", threads, p->threads);
	else
		buf_printf(out, ", %d thread%s each\n", threads, human_s(threads));
}

static void print_head(const struct job *job, const struct cluster *c, const struct plan *p,
		       struct buf *out)
{
	const struct model_shape *m = &p->shape;
	const struct layout *l = &p->layout;
	char text[HUMAN], kv[48] = "";
	double tokens = (double)job->batch.global * (double)m->seq;
	char experts[48] = "";
	if (m->kv_heads != m->heads)
		snprintf(kv, sizeof kv, " (%" PRId64 " key/value)", m->kv_heads);
	if (m->experts)
		snprintf(experts, sizeof experts, " of %" PRId64 " experts (%" PRId64 " a token)",
			 m->experts, m->top);
	buf_printf(out, "Plan for %s on %s\n\n", job->job.name, c->name);
	show_program_print(job, out);
	buf_printf(out,
		   "  model     %s, %s parameters: %" PRId64 " layer%s, hidden %" PRId64
		   ", %" PRId64 " heads of %" PRId64 "%s,\n"
		   "            ffn %" PRId64 "%s, vocab %" PRId64 ", seq %" PRId64 "%s\n",
		   job_word(job, offsetof(struct job, model.family)),
		   human_count((double)shape_params(m), "", text), m->layers, human_s(m->layers),
		   m->hidden, m->heads, m->head_dim, kv, m->ffn, experts, m->vocab, m->seq,
		   m->tied ? ", head tied to the embedding" : "");
	print_layout(p, out);
	buf_printf(out, "  batch     %" PRId64 " sequences = %s tokens per step, in ",
		   job->batch.global, human_count(tokens, "", text));
	print_micros(p, out);
	buf_printf(out, "%d micro-batch%s of %" PRId64 " a replica\n", p->micros,
		   p->micros == 1 ? "" : "es", job->batch.micro);
	if (l->pp > 1)
		buf_printf(out, "  schedule  %s",
			   job_word(job, offsetof(struct job, parallel.schedule)));
	if (l->pp > 1 && l->chunks > 1)
		buf_printf(out, ", %d chunks per rank", l->chunks);
	buf_puts(out, l->pp > 1 ? "\n" : "");
	print_ways(job, out);
}

static bool same_stage(const struct plan *p, int a, int b)
{
	for (int c = 0; c < p->layout.chunks; c++) {
		const struct stage *x = &p->stages[layout_stage(&p->layout, a, c)],
				   *y = &p->stages[layout_stage(&p->layout, b, c)];
		if (x->layer_hi - x->layer_lo != y->layer_hi - y->layer_lo ||
		    x->first != y->first || x->last != y->last)
			return false;
	}
	return !memcmp(&p->schedule.rows[a].slots, &p->schedule.rows[b].slots,
		       sizeof p->schedule.rows[a].slots);
}

/* Prints the layers of the pipeline ranks [from, to]: "0-3", or "0-3 8-11" if there are several
 * chunks; "-" is a chunk without layers. */
static void layers_of(const struct plan *p, int from, int to, struct buf *out)
{
	for (int c = 0; c < p->layout.chunks; c++) {
		const struct stage *a = &p->stages[layout_stage(&p->layout, from, c)],
				   *b = &p->stages[layout_stage(&p->layout, to, c)];
		int lo = a->layer_lo < b->layer_lo ? a->layer_lo : b->layer_lo,
		    hi = a->layer_hi > b->layer_hi ? a->layer_hi : b->layer_hi;
		if (hi == lo)
			buf_puts(out, c ? " -" : "-");
		else if (hi - lo == 1)
			buf_printf(out, "%s%d", c ? " " : "", lo);
		else
			buf_printf(out, "%s%d-%d", c ? " " : "", lo, hi - 1);
	}
}

/* The width of the widest entry. Many chunks have many ranges. */
static int layers_width(const struct plan *p)
{
	int wide = LAYERS_MIN;
	for (int s = 0; s < p->layout.pp; s++) {
		struct buf one = BUF_INIT;
		layers_of(p, s, s, &one);
		int w = (int)strlen(buf_str(&one));
		wide = w > wide ? w : wide;
		buf_fini(&one);
	}
	return wide;
}

static void print_stage(const struct plan *p, int from, int to, int wide, struct buf *out)
{
	const struct plan_rank *r = plan_largest(p, from);
	struct buf layers = BUF_INIT;
	char name[24], cell[HUMAN];
	snprintf(name, sizeof name, from == to ? "%d" : "%d-%d", from, to);
	layers_of(p, from, to, &layers);
	buf_printf(out, "  %-7s %-*s", name, wide, buf_str(&layers));
	buf_fini(&layers);
	const double parts[] = {
		r->params, r->grads, r->optimizer, r->activations, r->buffers + r->snapshot,
		r->total
	};
	for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++)
		buf_printf(out, " %9s", human_bytes(parts[i], cell));
	if (p->memory > 0)
		buf_printf(out, " %3.0f %%", 100 * r->total / p->memory);
	buf_puts(out, "\n");
}

/* Prints the memory of the fullest rank as a bar with one letter for each part. It shows what
 * prevents a larger job. */
static void print_fullest(const struct plan *p, struct buf *out)
{
	static const char letters[FIT_PARTS] = { 'p', 'g', 'o', 'a', 'b', 's' };
	const struct plan_rank *r = plan_largest(p, 0);
	double filled = 0;
	int drawn = 0;
	char part[HUMAN];
	for (int pp = 1; pp < p->layout.pp; pp++)
		r = plan_largest(p, pp)->total > r->total ? plan_largest(p, pp) : r;
	buf_printf(out, "  fullest, pp %d  ", r->at.pp);
	for (int i = 0; i < FIT_PARTS; i++) {
		filled += search_fit_part(r, i);
		for (; drawn < (int)lround(FULL_BAR * fmin(1, filled / p->memory)); drawn++)
			buf_add(out, &letters[i], 1);
	}
	for (; drawn < FULL_BAR; drawn++)
		buf_puts(out, "·");
	buf_puts(out, "\n                ");
	for (int i = 0, said = 0; i < FIT_PARTS; i++)
		if (search_fit_part(r, i) > 0.05 * r->total)
			buf_printf(out, "%s%s %s", said++ ? ", " : "", search_fit_part_name(i),
				   human_bytes(search_fit_part(r, i), part));
	buf_printf(out, "; free %s\n", human_bytes(p->memory - r->total, part));
}

/* On a device, memory limits the logits that exist at a time; muster's engine computes them in
 * chunks. */
static void print_logits(const struct job *job, const struct plan *p, struct buf *out)
{
	struct act_dims d;
	activations_dims_of(job, &p->shape, &p->layout, 0, false, &d);
	if (d.device && job->plan.engine == ENGINE_MUSTER && d.rows < d.n)
		buf_printf(out, "  logits in %lld chunks of at most %lld MiB (batch.logits)\n",
			   (long long)((d.n + d.rows - 1) / d.rows), (long long)p->logits);
}

static void print_memory(const struct job *job, const struct plan *p, struct buf *out)
{
	char has[HUMAN];
	buf_puts(out, "\nMemory per rank, by pipeline stage");
	if (p->memory > 0)
		buf_printf(out, " (of %s)", human_bytes(p->memory, has));
	if (p->library > 0)
		buf_printf(out, "; NCCL has up to %s besides", human_bytes(p->library, has));
	if (p->ranks[0].snapshot > 0)
		buf_puts(out, plan_memory_images(job) > 1 ? "; buffers with the snapshot and copies"
							  : "; buffers with the snapshot");
	int wide = layers_width(p);
	buf_printf(out, "\n  %-7s %-*s %9s %9s %9s %9s %9s %9s\n", "stage", wide, "layers",
		   "params", "grads", "optimizer", "activat.", "buffers", "total");
	for (int s = 0, to; s < p->layout.pp; s = to + 1) {
		for (to = s; to + 1 < p->layout.pp && same_stage(p, s, to + 1);)
			to++;
		print_stage(p, s, to, wide, out);
		if (to + 1 == STAGES_FIRST && p->layout.pp > STAGES_FIRST + STAGES_LAST + 4) {
			to = p->layout.pp - STAGES_LAST - 1;
			buf_puts(out, "  …\n");
		}
	}
	if (p->memory > 0)
		print_fullest(p, out);
	print_logits(job, p, out);
	/* The router decides how many rows come to a rank (agent/engine/model/moe.h). */
	if (p->shape.experts && job->model.capacity > 0)
		buf_printf(out,
			   "  for equal loads of the experts; those of unequal ones are at most %g "
			   "times as much\n",
			   job->model.capacity);
	else if (p->shape.experts)
		buf_puts(out, "  for equal loads of the experts; more where they are unequal, "
			      "which model.capacity would bound\n");
}

static void print_chips(const struct job *job, const struct cluster *c, struct buf *out)
{
	for (int i = 0; i < c->n_kinds; i++) {
		if (!c->kinds[i].chip)
			continue;
		buf_puts(out, "  ");
		cost_chip_text(&c->kinds[i], job, out);
		buf_puts(out, "\n");
	}
}

static void print_time(const struct job *job, const struct cluster *c, const struct plan *p,
		       struct buf *out)
{
	const struct plan_time *t = &p->time;
	static const char *const names[STEP_PART_COUNT] = {
#define STEP_PART_NAME(with, ENUM, member, name, transfers, doc) name,
		STEP_PARTS(STEP_PART_NAME, )
#undef STEP_PART_NAME
	};
	char text[HUMAN], rate[HUMAN], flops[HUMAN];
	double tokens = (double)job->batch.global * (double)p->shape.seq;
	double done = tokens * shape_flops_token(&p->shape) / t->total / p->world;
	struct plan_peak peak;
	plan_peak_of(c, p, &peak);
	buf_puts(out, "\nPredicted step\n");
	for (int i = 0; i < STEP_PART_COUNT; i++) {
		if (t->parts[i] < 1e-9) /* rounding */
			continue;
		buf_printf(out, "  %-16s %s  ", names[i], seconds(t->parts[i], text));
		human_bar(t->parts[i] / t->total, BAR, out);
		buf_printf(out, " %3.0f %%\n", 100 * t->parts[i] / t->total);
	}
	buf_printf(out, "  %-16s %s  %s tokens/s, %s per rank", "step", seconds(t->total, text),
		   human_count(tokens / t->total, "", rate), human_count(done, "FLOP/s", flops));
	if (peak.flops > 0)
		buf_printf(out, " (%.0f %% of %s)", 100 * done * p->world / peak.flops,
			   peak.devices);
	buf_puts(out, "\n");
	show_sureness_print(job, &peak, t->total, out);
	print_chips(job, c, out);
	if (*c->figures)
		buf_printf(out, "  %s\n", c->figures);
}

/* Of a program only the placement is planned. */
static void print_program(const struct job *job, const struct cluster *c, const struct plan *p,
			  struct buf *out)
{
	buf_printf(out, "Plan for %s on %s\n\n  program   %s\n", job->job.name, c->name,
		   job->job.program);
	print_layout(p, out);
	show_rank_map_print(c, p, out);
	size_t before = out->len;
	show_placement_print(c, p, out);
	if (out->len > before)
		buf_puts(out,
			 "  What the program transfers is not known; these are the transfers of a "
			 "large Transformer.\n");
}

static void print_training(const struct job *job, const struct cluster *cluster,
			   const struct plan *p, struct buf *out)
{
	print_head(job, cluster, p, out);
	show_rank_map_print(cluster, p, out);
	show_placement_print(cluster, p, out);
	show_missing_print(cluster, p, out);
	print_memory(job, p, out);
	print_time(job, cluster, p, out);
	show_train_time_print(job, cluster, p, out);
}

void show_plan_text(const struct job *job, const struct cluster *cluster, const struct plan *p,
		    struct buf *out)
{
	if (job_has_program(job))
		print_program(job, cluster, p, out);
	else
		print_training(job, cluster, p, out);
	if (*p->warning)
		buf_printf(out, "\nWarning: %s\n", p->warning);
}
