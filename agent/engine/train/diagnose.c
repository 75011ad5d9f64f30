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
		.key = t->key,
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

/* Keeps *h, so that the rank can say what it holds of another rank's tensor. */
static int scan_state(struct trainer *t, struct holdings *h, struct rank_findings *f, struct err *e)
{
	if (param_store_settle(t->state.store, e) || train_holdings_state(&t->state, true, h, e))
		return -1;
	describe_tensor(h, train_holdings_bad(h), (int)t->env->view->shape.layers, &f->before);
	return 0;
}

static enum witness witness_of(const struct holdings *h, uint64_t key)
{
	for (int i = 0; i < h->n; i++)
		if (h->list[i].key == key)
			return h->list[i].tally.bad ? WITNESS_BAD : WITNESS_GOOD;
	return WITNESS_NONE;
}

static bool same_tally(const struct tally *a, const struct tally *b)
{
	return !memcmp(a, b, sizeof *a);
}

/* any_order: backward passes have other bits each time, and are not compared. */
static void compare_remains(const struct remains *a, const struct remains *b, bool any_order,
			    struct rank_findings *f)
{
	for (int i = 0; i < a->kept.n && i < b->kept.n; i++) {
		const struct model_place *at = &a->kept.places[i];
		if ((at->backward && any_order) ||
		    same_tally(&a->kept.tallies[i], &b->kept.tallies[i]) ||
		    (f->differs && !train_diagnosis_before(at, &f->differs_at)))
			continue;
		f->differs = true;
		f->differs_at = *at;
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
	if (pipeline_check(t->engine, &t->stepper.batch, &r->loss_again, &f->again, e))
		return -1;
	trainer_phase(t, "diagnosis");
	return optim_grad_norm(t->optim, t->env->world, t->stepper.batch.loss_scale, &r->norm_again,
			       e);
}

static int compare_computations(struct trainer *t, struct rank_findings *f, struct step_results *r,
				struct err *e)
{
	const char *isa = backend_isa(pipeline_backend(t->engine));
	struct remains first = { .loss = 0 }, second = { .loss = 0 };
	int rc = take_remains(t, &first, e);
	if (!rc) {
		describe_tensor(&first.gradients, train_holdings_bad(&first.gradients), r->layers,
				&f->reduced);
		f->pieces = key_of(&first.gradients, isa);
		rc = compute_again(t, f, r, e) || take_remains(t, &second, e) ? -1 : 0;
	}
	if (!rc)
		compare_remains(&first, &second, r->any_order, f);
	remains_fini(&first);
	remains_fini(&second);
	return rc;
}

/* Sets all and witnesses [world]. The ranks make the same collective calls. */
static int share_findings(struct trainer *t, const struct rank_findings *own,
			  const struct holdings *h, struct rank_findings *all,
			  enum witness *witnesses, struct err *e)
{
	struct comm *world = t->env->world;
	if (comm_all_gather(world, own, all, sizeof *own, COMM_U8, e))
		return -1;
	int suspected = train_diagnosis_suspected(all, comm_size(world));
	enum witness mine = suspected < 0 ? WITNESS_NONE : witness_of(h, all[suspected].before.key);
	return comm_all_gather(world, &mine, witnesses, sizeof mine, COMM_U8, e);
}

struct answer {
	struct train_blame blame;
	char text[600];
};

static int decide(struct trainer *t, const struct rank_findings *own, const struct holdings *h,
		  const struct step_results *r, struct answer *out, struct err *e)
{
	int world = comm_size(t->env->world);
	struct rank_findings *all = calloc((size_t)world, sizeof *all);
	enum witness *witnesses = calloc((size_t)world, sizeof *witnesses);
	int rc = all && witnesses
			 ? share_findings(t, own, h, all, witnesses, e)
			 : err_set(e, ERR_NOMEM, "no memory for the findings of %d ranks", world);
	if (!rc)
		train_diagnosis_decide(all, witnesses, world, r, &out->blame, out->text,
				       sizeof out->text);
	free(witnesses);
	free(all);
	return rc;
}

/* A rank that fails alone must not leave the others in a collective call. */
static int diagnose_together(struct trainer *t, struct step_results *r, struct answer *out,
			     struct err *e)
{
	struct rank_findings own;
	struct holdings h = { .n = 0 };
	memset(&own, 0, sizeof own); /* also the gaps between members, which are sent */
	own.dp = t->env->view->at.dp;
	snprintf(own.node, sizeof own.node, "%s", t->env->node_name ? t->env->node_name : "");
	int rc = scan_state(t, &h, &own, e) || compare_computations(t, &own, r, e) ||
				 decide(t, &own, &h, r, out, e)
			 ? -1
			 : 0;
	if (rc)
		comm_abort(t->env->world, e->text);
	train_holdings_close(&h);
	return rc;
}

void train_diagnose(struct trainer *t, double loss, double norm, struct err *e)
{
	char was[sizeof e->text];
	struct err failed = ERR_INIT;
	struct answer answer = { .blame = { .step = t->at.step + 1, .kind = "" } };
	const struct job *job = t->env->view->job;
	struct step_results r = { .loss = loss,
				  .norm = norm,
				  .layers = (int)t->env->view->shape.layers,
				  .any_order = job->job.device == DEVICE_CUDA &&
					       job->job.deterministic == DETERMINISTIC_ANY_ORDER };
	if (t->server || !t->optim)
		return;
	trainer_phase(t, "diagnosis");
	if (diagnose_together(t, &r, &answer, &failed)) {
		log_warn("step %lld: where its wrong numbers began could not be found: %s",
			 (long long)answer.blame.step, failed.text);
		return;
	}
	if (t->env->blame)
		*t->env->blame = answer.blame;
	if (!e || !*answer.text)
		return;
	snprintf(was, sizeof was, "%s", e->text);
	if (answer.blame.suspect)
		err_set(e, e->code, "step %lld: loss %g, gradient norm %g; nothing was updated; %s",
			(long long)answer.blame.step, loss, norm, answer.text);
	else
		err_set(e, e->code, "%.380s; %s", was, answer.text);
}
