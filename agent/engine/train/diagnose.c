#include "agent/engine/train/diagnose.h"

#include "agent/engine/train/diagnosis.h"
#include "agent/engine/train/holdings.h"
#include "agent/engine/train/trainer.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the first computation left on this rank. */
struct remains {
	struct model_kept kept;
	struct holdings gradients;
	double loss;
};

static int take_remains(struct trainer *t, struct remains *r, struct err *e)
{
	*r = (struct remains){ .loss = pipeline_local_loss(t->engine) };
	t->hooks->moved(t->hooks->arg);
	if (model_retained(pipeline_model(t->engine), &r->kept, e) ||
	    train_holdings_gradients(t->state.store, &r->gradients, e))
		return -1;
	t->hooks->moved(t->hooks->arg);
	return 0;
}

static void remains_fini(struct remains *r)
{
	model_kept_fini(&r->kept);
	train_holdings_close(&r->gradients);
}

static void describe_tensor(const struct holdings *h, const struct held *t, int layers,
			    struct bad_tensor *out)
{
	if (!t)
		return;
	*out = (struct bad_tensor){
		.bad = (int64_t)t->tally.bad,
		.count = t->count,
		.layer = t->param->role >= PARAM_NORM_W ? layers : t->param->layer,
		.ordinal = (int)(t - h->list),
		.state = t->what == HELD_STATE,
	};
	snprintf(out->name, sizeof out->name, "%s", t->param->name);
}

static uint64_t key_of(const struct holdings *h, const char *isa)
{
	struct held_sum sums[HELD_CLASSES];
	uint64_t key = 0;
	train_holdings_sum(h, isa, sums);
	for (int i = 0; i < HELD_CLASSES; i++)
		key = key * 31 + sums[i].key;
	return key;
}

static int scan_state(struct trainer *t, const char *isa, struct rank_findings *f, struct err *e)
{
	struct holdings h;
	int layers = (int)t->env->view->shape.layers;
	if (param_store_settle(t->state.store, e) || train_holdings_state(&t->state, true, &h, e))
		return -1;
	describe_tensor(&h, train_holdings_bad(&h), layers, &f->before);
	f->held = key_of(&h, isa);
	train_holdings_close(&h);
	return 0;
}

static bool same_tally(const struct tally *a, const struct tally *b)
{
	return !memcmp(a, b, sizeof *a);
}

static void compare_remains(const struct remains *a, const struct remains *b,
			    struct rank_findings *f)
{
	f->differs_at = f->differs_layer = -1;
	for (int i = 0; i < a->kept.n && i < b->kept.n && f->differs_at < 0; i++)
		if (!same_tally(&a->kept.tallies[i], &b->kept.tallies[i])) {
			f->differs_at = i;
			f->differs_layer = a->kept.layers[i];
		}
	for (int i = 0; i < a->gradients.n && i < b->gradients.n; i++)
		f->gradients_differ |= !same_tally(&a->gradients.list[i].tally,
						   &b->gradients.list[i].tally);
	f->loss_differs = memcmp(&a->loss, &b->loss, sizeof a->loss) != 0;
	f->reduced_again = train_holdings_bad(&b->gradients) != NULL;
}

/* Computes the step again. Its norm includes each rank's gradients, as in the first computation. */
static int compute_again(struct trainer *t, struct rank_findings *f, struct step_results *r,
			 struct err *e)
{
	if (pipeline_check(t->engine, &t->batch, &r->loss_again, &f->again, e))
		return -1;
	t->hooks->progress(t->hooks->arg, t->at.step, "diagnosis");
	return optim_grad_norm(t->optim, t->env->world, t->batch.loss_scale, &r->norm_again, e);
}

/* All ranks come here, so each of them must make the same collective calls. */
static int find(struct trainer *t, struct rank_findings *f, struct step_results *r, struct err *e)
{
	const char *isa = backend_isa(pipeline_backend(t->engine));
	struct remains first, second = { .loss = 0 };
	int rc = scan_state(t, isa, f, e);
	if (rc || take_remains(t, &first, e)) {
		if (!rc)
			remains_fini(&first);
		return -1;
	}
	describe_tensor(&first.gradients, train_holdings_bad(&first.gradients), r->layers,
			&f->reduced);
	f->pieces = key_of(&first.gradients, isa);
	rc = compute_again(t, f, r, e) || take_remains(t, &second, e) ? -1 : 0;
	if (!rc)
		compare_remains(&first, &second, f);
	remains_fini(&first);
	remains_fini(&second);
	return rc;
}

static int decide(struct trainer *t, const struct rank_findings *own, const struct step_results *r,
		  struct train_blame *blame, char *text, size_t size, struct err *e)
{
	int world = comm_size(t->env->world);
	struct rank_findings *all = calloc((size_t)world, sizeof *all);
	if (!all)
		return err_set(e, ERR_NOMEM, "no memory for the findings of %d ranks", world);
	int rc = comm_all_gather(t->env->world, own, all, sizeof *own, COMM_U8, e);
	if (!rc)
		train_diagnosis_decide(all, world, r, blame, text, size);
	free(all);
	return rc;
}

/* One rank that fails alone must not leave the others in a collective call. */
static int diagnose_together(struct trainer *t, struct step_results *r, struct train_blame *blame,
			     char *text, size_t size, struct err *e)
{
	struct rank_findings own;
	memset(&own, 0, sizeof own); /* also the gaps between members, which are sent */
	own.differs_at = own.differs_layer = -1;
	snprintf(own.node, sizeof own.node, "%s", t->env->node_name ? t->env->node_name : "");
	if (!find(t, &own, r, e))
		return decide(t, &own, r, blame, text, size, e);
	comm_abort(t->env->world, e->text);
	return -1;
}

void train_diagnose(struct trainer *t, double loss, double norm, struct err *e)
{
	char text[600] = "", was[sizeof e->text];
	struct err failed = ERR_INIT;
	struct train_blame blame = { .step = t->at.step + 1, .kind = "" };
	struct step_results r = { .loss = loss,
				  .norm = norm,
				  .layers = (int)t->env->view->shape.layers };
	if (t->server || !t->optim)
		return;
	t->hooks->progress(t->hooks->arg, t->at.step, "diagnosis");
	if (diagnose_together(t, &r, &blame, text, sizeof text, &failed)) {
		log_warn("step %lld: where its wrong numbers began could not be found: %s",
			 (long long)blame.step, failed.text);
		return;
	}
	if (t->env->blame)
		*t->env->blame = blame;
	if (!e || !*text)
		return;
	snprintf(was, sizeof was, "%s", e->text);
	err_set(e, e->code, "%.380s; %s", was, text);
}
