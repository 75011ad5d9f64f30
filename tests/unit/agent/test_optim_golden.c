/*
 * Compares Adafactor and Muon with tests/golden/optimizer_cases.json. That file has steps in
 * float64, by formulas that were written independently (tests/golden/make_optimizers.py). After 6
 * steps, parameters and states must agree on both backends.
 */
#include "agent/engine/optim/optim.h"
#include "tests/unit/agent/golden_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PARAMS_MAX = 8, GRAIN = 16 };

struct bed {
	struct param params[PARAMS_MAX];
	struct unit unit;
	struct catalogue catalogue;
	struct job job;
	struct backend *k;
	struct param_store *store;
	struct optim *o;
};

static json_t *golden;

static double number_of(const json_t *row, const char *key)
{
	const json_t *v = json_object_get(row, key);
	if (!json_is_number(v))
		fail_msg("%s is no number", key);
	return json_number_value(v);
}

static enum param_role role_of(const char *word)
{
	return !strcmp(word, "embed")    ? PARAM_EMBED
	       : !strcmp(word, "hidden") ? PARAM_UP_W
					 : PARAM_UP_B;
}

static void add_param(struct bed *b, const json_t *row)
{
	struct param *p = &b->params[b->catalogue.n++];
	int64_t rows = (int64_t)number_of(row, "rows"),
		columns = (int64_t)number_of(row, "columns");
	*p = (struct param){ .role = role_of(json_string_value(json_object_get(row, "role"))),
			     .dims = columns ? 2 : 1,
			     .decay = columns > 0,
			     .copies = 1,
			     .expert = -1,
			     .offset = b->unit.hi };
	p->shape[0] = p->hi[0] = rows;
	p->shape[1] = p->hi[1] = columns ? columns : 1;
	p->count = p->shape[0] * p->shape[1];
	b->unit.hi += (p->count + GRAIN - 1) / GRAIN * GRAIN;
}

static void read_job(struct job *job, enum job_optimizer kind)
{
	const json_t *j = json_object_get(golden, "job");
	memset(job, 0, sizeof *job);
	job->job.steps = (int64_t)number_of(j, "steps");
	job->optimizer.kind = kind;
	job->optimizer.schedule = LR_CONSTANT;
	job->optimizer.lr = number_of(j, "lr");
	job->optimizer.weight_decay = number_of(j, "weight_decay");
	job->optimizer.clip = number_of(j, "clip");
	job->optimizer.beta1 = number_of(j, "beta1");
	job->optimizer.beta2 = number_of(j, "beta2");
	job->optimizer.eps = number_of(j, "eps");
}

/* Compares the matrix [rows][columns] with values[rows × columns]. `set`: copies it there
 * instead. */
static void compare_or_set(const json_t *matrix, float *values, int64_t columns, bool set,
			   double scale, const char *what)
{
	size_t i, j;
	const json_t *row, *x;
	json_array_foreach(matrix, i, row)
	{
		if (!json_is_array(row)) { /* a vector */
			double want = json_number_value(row) * scale;
			if (!(fabs(values[i] - want) <= 1e-5 * fabs(want) + 1e-9))
				fail_msg("%s[%zu] is %.9g, not %.9g", what, i, (double)values[i],
					 want);
			continue;
		}
		json_array_foreach(row, j, x)
		{
			double want = json_number_value(x) * scale;
			float *at = &values[i * (size_t)columns + j];
			if (set)
				*at = (float)want;
			else if (!(fabs(*at - want) <= 2e-6 * fabs(want) + 2e-6))
				fail_msg("%s[%zu][%zu] is %.9g, not %.9g", what, i, j, (double)*at,
					 want);
		}
	}
}

static const json_t *row_of(const json_t *params, const struct bed *b, const struct param_piece *p)
{
	return json_array_get(params, (size_t)(p->param - b->params));
}

static void check_states(struct bed *b, const struct param_piece *p, const json_t *states)
{
	const struct optimizer *traits = optimizer_of(b->job.optimizer.kind);
	size_t found = 0;
	for (int i = 0; i < OPTIMIZER_STATES_MAX; i++) {
		const char *name = traits->states[i].name;
		float *at = optim_state(b->o, i, p);
		if (!at)
			at = optim_factor(b->o, i, p->param);
		if (!at)
			continue;
		found++;
		if (!json_object_get(states, name))
			fail_msg("state %s of parameter %d is not expected", name,
				 (int)(p->param - b->params));
		compare_or_set(json_object_get(states, name), at, p->param->shape[1], false, 1,
			       name);
	}
	assert_int_equal(found, json_object_size(states));
}

static void steps_agree(const json_t *row, const char *backend_name, float loss_scale)
{
	struct bed b = { .unit = { .kind = UNIT_LAYER } };
	const json_t *params = json_object_get(row, "params"), *param;
	enum job_optimizer kind;
	size_t i;
	int n;
	assert_true(optimizer_find(json_string_value(json_object_get(row, "kind")), &kind));
	json_array_foreach(params, i, param) add_param(&b, param);
	b.unit.n_params = b.catalogue.n;
	b.catalogue.params = b.params;
	b.catalogue.units = &b.unit;
	b.catalogue.n_units = 1;
	b.catalogue.elements = b.unit.hi;
	read_job(&b.job, kind);
	assert_int_equal(backend_open(backend_name, 2, &b.k, NULL), 0);
	const struct param_store_options so = { .catalogue = &b.catalogue, .backend = b.k };
	assert_int_equal(param_store_open(&so, &b.store, NULL), 0);
	const struct optim_options oo = { .backend = b.k, .store = b.store, .job = &b.job };
	assert_int_equal(optim_open(&oo, &b.o, NULL), 0);
	const struct param_piece *pieces = param_store_pieces(b.store, &n);
	for (int k = 0; k < n; k++)
		compare_or_set(json_object_get(row_of(params, &b, &pieces[k]), "begin"),
			       pieces[k].master, pieces[k].param->shape[1], true, 1, "begin");
	for (int step = 0; step < b.job.job.steps; step++) {
		for (int k = 0; k < n; k++)
			compare_or_set(
				json_array_get(json_object_get(row_of(params, &b, &pieces[k]),
							       "grads"),
					       (size_t)step),
				pieces[k].grad, pieces[k].param->shape[1], true, loss_scale,
				"grads");
		assert_int_equal(optim_step(b.o, 0, loss_scale, step, NULL), 0);
	}
	for (int k = 0; k < n; k++) {
		const json_t *want = row_of(params, &b, &pieces[k]);
		compare_or_set(json_object_get(want, "end"), pieces[k].master,
			       pieces[k].param->shape[1], false, 1,
			       json_string_value(json_object_get(want, "name")));
		check_states(&b, &pieces[k], json_object_get(want, "state"));
	}
	optim_close(b.o);
	param_store_close(b.store);
	backend_close(b.k);
}

static void updates_equal_the_papers_formulas(void **state)
{
	(void)state;
	size_t i;
	const json_t *row;
	assert_int_equal(json_array_size(json_object_get(golden, "cases")), 2);
	json_array_foreach(json_object_get(golden, "cases"), i, row)
	{
		steps_agree(row, "reference", 1);
		steps_agree(row, "cpu", 1);
		steps_agree(row, "cpu", 1024);
	}
}

static int open_golden(void **state)
{
	(void)state;
	golden = golden_json("tests/golden/optimizer_cases.json");
	return golden ? 0 : -1;
}

static int close_golden(void **state)
{
	(void)state;
	json_decref(golden);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(updates_equal_the_papers_formulas),
	};
	return cmocka_run_group_tests(tests, open_golden, close_golden);
}
