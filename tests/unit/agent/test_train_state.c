/* Tests what a complete checkpoint contains, and how a run resumes. A double in one folder
 * replaces the checkpoint module. (test_state_layouts.c uses the real one.) */
#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "agent/engine/ckpt/memory/store.h"
#include "agent/engine/train/resume.h"
#include "base/log.h"
#include "tests/unit/agent/world.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* --- the checkpoint module's double --- */

static struct {
	int newest;            /* step of the latest existing checkpoint, 0: none */
	int damaged;           /* checkpoints of this step and later do not load, */
	enum err_code why;     /* for this reason, */
	bool elsewhere;        /* and only on rank 1 */
	const char *optimizer; /* the optimizer of the checkpoints */
	struct comm *comm;
	bool flipped; /* memory differs after a load */
	int loads, checks;
	int in_memory;      /* step of the state in memory, 0: none */
	bool memory_breaks; /* it cannot be loaded, nor can what a checkpoint's load takes from it */
	char dir[64];
} world;

int ckpt_save_to(struct ckpt_writer *w, unsigned where, const struct ckpt_state *state,
		 const struct ckpt_tensor *tensors, int n, struct err *e)
{
	(void)w, (void)where, (void)state, (void)tensors, (void)n;
	return err_set(e, ERR_INTERNAL, "nothing is saved here");
}

void ckpt_writer_prepare(struct ckpt_writer *w, const struct ckpt_tensor *tensors, int n)
{
	(void)w, (void)tensors, (void)n;
}

int ckpt_latest_of(const char *dir, const struct ckpt_wish *wish, char **path, struct err *e)
{
	(void)wish;
	(void)e;
	*path = NULL;
	for (int step = world.newest; step > 0 && !*path; step--) {
		char name[128];
		snprintf(name, sizeof name, "%s/step-%08d", dir, step);
		if (!access(name, F_OK))
			*path = strdup(name);
	}
	return 0;
}

static int load_here(const struct ckpt_load_options *opt, struct ckpt_state *state,
		     struct ckpt_tensor *tensors, int n, struct err *e)
{
	int step = atoi(strrchr(opt->path, '-') + 1);
	world.loads++;
	for (int i = 0; i < n; i++)
		tensors[i].data[0] = (float)step;
	if (world.damaged && step >= world.damaged &&
	    (!world.elsewhere || comm_rank(world.comm) == 1))
		return err_set(e, world.why, "%s: a bit has changed", opt->path);
	struct store_copy copy;
	if (opt->store && ckpt_store_list(opt->store, 0, 0, &copy) && world.memory_breaks)
		return err_set(e, ERR_CORRUPT, "a bit of a copy has changed");
	*state = (struct ckpt_state){ .step = step, .samples = 8 * step };
	snprintf(state->optimizer, sizeof state->optimizer, "%s", world.optimizer);
	return opt->accept(opt->arg, state, e);
}

int ckpt_load_all(struct comm *group, const struct ckpt_load_options *opt, struct ckpt_state *state,
		  struct ckpt_tensor *tensors, int n, int *culprit, struct err *e)
{
	struct err mine = ERR_INIT;
	return ckpt_agree(group, load_here(opt, state, tensors, n, &mine), &mine, culprit, e);
}

int ckpt_recover_find(struct comm *group, const struct ckpt_store *store, int64_t *step,
		      uint32_t *generation, int *culprit, struct err *e)
{
	(void)group, (void)store, (void)culprit, (void)e;
	*step = world.in_memory ? world.in_memory : -1;
	*generation = 1;
	return world.in_memory > 0;
}

int ckpt_recover_all(struct comm *group, const struct ckpt_load_options *opt,
		     struct ckpt_state *state, struct ckpt_tensor *tensors, int n, int *culprit,
		     struct err *e)
{
	(void)group;
	*culprit = 0;
	for (int i = 0; i < n; i++)
		tensors[i].data[0] = (float)world.in_memory;
	*state = (struct ckpt_state){ .step = world.in_memory, .samples = 8 * world.in_memory };
	snprintf(state->optimizer, sizeof state->optimizer, "%s", world.optimizer);
	if (world.memory_breaks)
		return err_set(e, ERR_CORRUPT, "a bit of a copy has changed");
	return opt->accept(opt->arg, state, e) ? -1 : 1;
}

int ckpt_check_loaded(struct comm *comm, const char *path, const struct ckpt_tensor *tensors, int n,
		      const struct ckpt_watch *watch, struct err *e)
{
	(void)comm, (void)watch;
	int step = atoi(strrchr(path, '-') + 1);
	for (int i = 0; i < n; i++)
		if (tensors[i].data[0] != (float)step)
			return err_set(e, ERR_INTERNAL, "%s: is checked before it is loaded", path);
	world.checks++;
	if (world.flipped)
		return err_set(e, ERR_CORRUPT, "%s: its digest in memory differs", path);
	return 0;
}

int ckpt_state_check_loaded(struct comm *comm, const struct manifest *m,
			    const struct ckpt_tensor *tensors, int n,
			    const struct ckpt_watch *watch, struct err *e)
{
	(void)comm, (void)m, (void)tensors, (void)n, (void)watch;
	return err_set(e, ERR_INTERNAL, "no node has a checkpoint here");
}

/* --- a whole checkpoint --- */

static struct model_shape shape_of(enum job_family family)
{
	struct job job;
	assert_int_equal(job_parse("", "defaults", &job, NULL), 0);
	job.model.family = family;
	job.model.layers = 5;
	job.model.hidden = 24;
	job.model.heads = 4;
	job.model.kv_heads = family == FAMILY_LLAMA ? 2 : 0;
	job.model.head_dim = 0;
	job.model.ffn = 40;
	job.model.vocab = 101;
	job.model.seq = 16;
	struct model_shape s;
	shape_of_job(&job, &s);
	return s;
}

static int index_of(const struct ckpt_tensor *list, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i].name, name))
			return i;
	return -1;
}

static int count_tensors(const struct ckpt_tensor *list, int n, const char *prefix)
{
	int found = 0;
	for (int i = 0; i < n; i++)
		found += !strncmp(list[i].name, prefix, strlen(prefix));
	return found;
}

static void every_parameter_has_its_moments(void **state)
{
	(void)state;
	static const struct {
		enum job_optimizer kind;
		int moments;
	} rows[] = { { OPTIMIZER_ADAMW, 2 }, { OPTIMIZER_SGD, 1 } };
	static const char *const prefixes[] = { "optim.m.", "optim.v." };
	for (int k = 0; k < 2; k++) {
		struct model_shape s = shape_of(FAMILY_GPT2);
		struct ckpt_tensor *list;
		int n, params;
		assert_int_equal(train_state_whole(&s, rows[k].kind, false, &list, &n, NULL), 0);
		params = n - count_tensors(list, n, "optim.");
		for (int i = 0; i < n; i++)
			for (int j = 0; j < rows[k].moments && strncmp(list[i].name, "optim.", 6);
			     j++) {
				char name[128];
				snprintf(name, sizeof name, "%s%s", prefixes[j], list[i].name);
				assert_true(index_of(list, n, name) >= 0);
			}
		assert_int_equal(n, (1 + rows[k].moments) * params);
		free(list);
	}
}

static void experts_are_part_of_what_must_be_equal(void **state)
{
	(void)state;
	struct model_shape dense = shape_of(FAMILY_LLAMA), sparse = shape_of(FAMILY_MIXTRAL);
	json_t *a = train_state_model(&dense), *b = train_state_model(&sparse);
	assert_null(json_object_get(a, "experts"));
	assert_int_equal(json_integer_value(json_object_get(b, "experts")), sparse.experts);
	assert_int_equal(json_integer_value(json_object_get(b, "experts_per_token")), sparse.top);
	assert_string_equal(json_string_value(json_object_get(b, "family")), "mixtral");
	json_decref(a);
	json_decref(b);
}

/* --- resuming --- */

static char *folder(const char *prefix, int step)
{
	static char path[2][128];
	static int next;
	next = !next;
	snprintf(path[next], sizeof path[next], "%s/%sstep-%08d", world.dir, prefix, step);
	return path[next];
}

static void checkpoints_at(int a, int b)
{
	world.newest = b;
	world.damaged = 0;
	world.loads = world.checks = 0;
	world.flipped = false;
	assert_int_equal(mkdir(folder("", a), 0700), 0);
	assert_int_equal(mkdir(folder("", b), 0700), 0);
}

static void sweep(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s/*", world.dir);
	assert_int_equal(system(command), 0);
}

/* A model of one number, with its two moments. */
struct fixture {
	struct param param;
	struct unit unit;
	struct catalogue catalogue;
	struct job job;
	struct backend *backend;
	struct param_store *store;
	struct optim *optim;
};

static void fixture_open(struct fixture *f)
{
	*f = (struct fixture){
		.param = { .name = "x", .dims = 1, .shape = { 1, 1 }, .hi = { 1, 1 }, .count = 1 },
		.unit = { .kind = UNIT_NORM, .hi = 16, .n_params = 1 },
	};
	f->catalogue = (struct catalogue){ &f->param, 1, &f->unit, 1, 16 };
	assert_int_equal(backend_open("reference", 1, &f->backend, NULL), 0);
	assert_int_equal(param_store_open(&(struct param_store_options){ .catalogue = &f->catalogue,
									 .backend = f->backend },
					  &f->store, NULL),
			 0);
	assert_int_equal(optim_open(&(struct optim_options){ .backend = f->backend,
							     .store = f->store,
							     .job = &f->job },
				    &f->optim, NULL),
			 0);
}

static void fixture_close(struct fixture *f)
{
	optim_close(f->optim);
	param_store_close(f->store);
	backend_close(f->backend);
}

static float number(const struct fixture *f, int i)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(f->store, &n);
	return i ? optim_state(f->optim, i - 1, pieces)[0] : pieces[0].master[0];
}

static int resume_in(const char *dir, const char *wish, struct fixture *f, struct ckpt_state *at,
		     struct err *e)
{
	const struct train_state state = { .store = f->store, .optim = f->optim };
	struct train_origin from;
	return train_resume(world.comm, wish, &(struct train_tiers){ .dir = dir }, NULL, NULL,
			    &state, at, &from, e);
}

static int resume(const char *wish, struct fixture *f, struct ckpt_state *at, struct err *e)
{
	return resume_in(world.dir, wish, f, at, e);
}

static void the_newer_of_memory_and_checkpoints_is_used(void **state)
{
	(void)state;
	static const struct {
		int in_memory;
		bool breaks;
		int step;
		enum train_tier tier;
	} rows[] = {
		{ 12, false, 12, TRAIN_MEMORY },
		{ 8, false, 8, TRAIN_MEMORY },
		{ 6, false, 8, TRAIN_DIR },
		{ 12, true, 8, TRAIN_DIR },
	};
	struct err e = ERR_INIT;
	struct ckpt_store *store;
	assert_int_equal(ckpt_store_open(&(struct ckpt_store_options){ 0 }, &store, &e), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct fixture f;
		struct ckpt_state at;
		struct train_origin from;
		fixture_open(&f);
		checkpoints_at(4, 8);
		world.in_memory = rows[i].in_memory;
		world.memory_breaks = rows[i].breaks;
		const struct train_state s = { .store = f.store, .optim = f.optim };
		assert_int_equal(train_resume(world.comm, "auto",
					      &(struct train_tiers){ .dir = world.dir }, store,
					      NULL, &s, &at, &from, &e),
				 1);
		assert_int_equal(at.step, rows[i].step);
		assert_int_equal(from.tier, rows[i].tier);
		assert_int_equal(from.saved, 8);
		assert_int_equal(world.loads, rows[i].tier == TRAIN_DIR);
		for (int k = 0; k < 3; k++)
			assert_true(number(&f, k) == (float)rows[i].step);
		fixture_close(&f);
		sweep();
	}
	world.in_memory = 0;
	ckpt_store_close(store);
}

/* Copies of the checkpoint's shards have changed, whether they are a whole state or not. */
static void copies_that_changed_damage_no_checkpoint(void **state)
{
	(void)state;
	const struct ckpt_state then = { .step = 8 };
	struct err e = ERR_INIT;
	struct ckpt_store *store;
	world.memory_breaks = true;
	for (world.in_memory = 0; world.in_memory <= 8; world.in_memory += 8) {
		struct fixture f;
		struct ckpt_state at;
		struct train_origin from;
		json_t *model = json_object();
		const struct ckpt_store_options opt = { .owners = 1,
							.model = model,
							.layout = model };
		assert_int_equal(ckpt_store_open(&opt, &store, &e), 0);
		assert_int_equal(ckpt_store_take(store, 0, &then, 1, NULL, 0, &e), 0);
		assert_int_equal(ckpt_store_seal(store, 0, &e), 0);
		fixture_open(&f);
		checkpoints_at(4, 8);
		const struct train_state s = { .store = f.store, .optim = f.optim };
		assert_int_equal(train_resume(world.comm, "auto",
					      &(struct train_tiers){ .dir = world.dir }, store,
					      NULL, &s, &at, &from, &e),
				 1);
		assert_int_equal(at.step, 8);
		assert_int_equal(from.tier, TRAIN_DIR);
		assert_int_equal(access(folder("", 8), F_OK), 0);
		fixture_close(&f);
		ckpt_store_close(store);
		json_decref(model);
		sweep();
	}
	world.in_memory = 0;
	world.memory_breaks = false;
}

static void without_a_checkpoint_a_run_starts_fresh(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	world.newest = world.loads = 0;
	assert_int_equal(resume("none", &f, &at, &e), 0);
	assert_int_equal(resume("", &f, &at, &e), 0);
	assert_int_equal(resume("auto", &f, &at, &e), 0);
	assert_int_equal(world.loads, 0);
	fixture_close(&f);
}

static void auto_takes_the_newest(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	assert_int_equal(resume("auto", &f, &at, &e), 1);
	assert_int_equal(at.step, 8);
	assert_int_equal(at.samples, 64);
	for (int i = 0; i < 3; i++)
		assert_true(number(&f, i) == 8);
	fixture_close(&f);
	sweep();
}

/* The file is intact, so it is neither renamed nor is the one before it used. */
static void a_state_that_changed_in_memory_ends_the_run(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	assert_int_equal(resume("auto", &f, &at, &e), 1);
	assert_int_equal(world.checks, 1);
	world.flipped = true;
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_int_equal(access(folder("", 8), F_OK), 0);
	fixture_close(&f);
	sweep();
}

static void a_damaged_one_is_set_aside_and_the_one_before_it_used(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	world.damaged = 8;
	world.why = ERR_CORRUPT;
	/* An earlier checkpoint with this name must not be an obstacle. */
	assert_int_equal(mkdir(folder("damaged-", 8), 0700), 0);
	close(open(strcat(folder("damaged-", 8), "/x"), O_CREAT | O_WRONLY, 0600));
	assert_int_equal(resume("auto", &f, &at, &e), 1);
	assert_int_equal(at.step, 4);
	assert_true(access(folder("", 8), F_OK) != 0);
	assert_int_equal(access(strcat(folder("damaged-", 8), ".1"), F_OK), 0);
	fixture_close(&f);
	sweep();
}

static void when_all_are_damaged_the_run_does_not_start_over(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	world.damaged = 1;
	world.why = ERR_CORRUPT;
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	for (int i = 0; i < 3; i++)
		assert_true(number(&f, i) == 0);
	/* The next generation does not start over either. */
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	fixture_close(&f);
	sweep();
}

static void what_cannot_be_read_now_is_not_called_damaged(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	world.damaged = 8;
	world.why = ERR_IO;
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_int_equal(access(folder("", 8), F_OK), 0);
	fixture_close(&f);
	sweep();
}

/* Resumes a run that starts from somebody else's checkpoint. Its own checkpoints are in another
 * folder, which is empty. */
static int resume_elsewhere(const char *wish, struct fixture *f, struct ckpt_state *at,
			    struct err *e)
{
	return resume_in("/nowhere", wish, f, at, e);
}

static void a_beginning_that_was_asked_for_by_name_is_loaded_or_refused(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	char path[128];
	fixture_open(&f);
	checkpoints_at(4, 8);
	world.damaged = 8;
	world.why = ERR_CORRUPT;
	snprintf(path, sizeof path, "%s", folder("", 4));
	assert_int_equal(resume_elsewhere(path, &f, &at, &e), 1);
	assert_int_equal(at.step, 4);
	snprintf(path, sizeof path, "%s", folder("", 8));
	assert_int_equal(resume_elsewhere(path, &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_int_equal(access(path, F_OK), 0);
	fixture_close(&f);
	sweep();
}

static void a_run_that_has_begun_goes_on_from_its_own(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	assert_int_equal(resume("/nowhere/step-00000099", &f, &at, &e), 1);
	assert_int_equal(at.step, 8);
	assert_int_equal(resume(folder("", 8), &f, &at, &e), 1);
	assert_int_equal(at.step, 8);
	fixture_close(&f);
	sweep();
}

static void nothing_is_trained_past_a_newer_checkpoint(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	assert_int_equal(resume("none", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "step-00000008"));
	e = (struct err)ERR_INIT;
	assert_int_equal(resume(folder("", 4), &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "step-00000008"));
	assert_int_equal(world.loads, 0);
	fixture_close(&f);
	sweep();
}

static void another_optimizers_moments_are_refused(void **state)
{
	(void)state;
	struct fixture f;
	struct ckpt_state at;
	struct err e = ERR_INIT;
	fixture_open(&f);
	checkpoints_at(4, 8);
	world.optimizer = "sgd";
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "sgd"));
	assert_non_null(strstr(e.text, "adamw"));
	assert_int_equal(access(folder("", 8), F_OK), 0);
	world.optimizer = "adamw";
	assert_int_equal(resume("auto", &f, &at, &e), 1);
	world.optimizer = "";
	fixture_close(&f);
	sweep();
}

static int resume_with_others(struct comm *comm, void *arg, struct err *e)
{
	(void)arg;
	struct fixture f;
	struct ckpt_state at;
	world.comm = comm;
	fixture_open(&f);
	if (resume("auto", &f, &at, e) != 1)
		return -1;
	if (at.step != 4 || number(&f, 0) != 4)
		return err_set(e, ERR_INTERNAL, "rank %d went on from step %d", comm_rank(comm),
			       (int)at.step);
	fixture_close(&f);
	return 0;
}

static void what_one_rank_finds_damaged_no_rank_uses(void **state)
{
	(void)state;
	checkpoints_at(4, 8);
	world.damaged = 8;
	world.why = ERR_CORRUPT;
	world.elsewhere = true;
	assert_int_equal(world_run(3, resume_with_others, NULL), 0);
	world.elsewhere = false;
	sweep();
}

static void a_path_that_has_no_room_for_names_is_refused(void **state)
{
	(void)state;
	char run[JOB_PATH], dir[JOB_PATH];
	struct job job;
	struct err e = ERR_INIT;
	assert_int_equal(job_parse("", "defaults", &job, NULL), 0);
	memset(run, 'r', sizeof run);
	run[JOB_PATH - 65] = '\0';
	assert_int_equal(train_resume_dir(&job, run, dir, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	run[JOB_PATH - 80] = '\0';
	assert_int_equal(train_resume_dir(&job, run, dir, &e), 0);
	assert_string_equal(dir + JOB_PATH - 80, "/ckpt");
	strcpy(job.checkpoint.dir, "elsewhere");
	assert_int_equal(train_resume_dir(&job, run, dir, &e), 0);
	assert_string_equal(dir, "elsewhere");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_parameter_has_its_moments),
		cmocka_unit_test(experts_are_part_of_what_must_be_equal),
		cmocka_unit_test(without_a_checkpoint_a_run_starts_fresh),
		cmocka_unit_test(auto_takes_the_newest),
		cmocka_unit_test(the_newer_of_memory_and_checkpoints_is_used),
		cmocka_unit_test(a_state_that_changed_in_memory_ends_the_run),
		cmocka_unit_test(copies_that_changed_damage_no_checkpoint),
		cmocka_unit_test(a_damaged_one_is_set_aside_and_the_one_before_it_used),
		cmocka_unit_test(when_all_are_damaged_the_run_does_not_start_over),
		cmocka_unit_test(what_cannot_be_read_now_is_not_called_damaged),
		cmocka_unit_test(a_beginning_that_was_asked_for_by_name_is_loaded_or_refused),
		cmocka_unit_test(a_run_that_has_begun_goes_on_from_its_own),
		cmocka_unit_test(nothing_is_trained_past_a_newer_checkpoint),
		cmocka_unit_test(another_optimizers_moments_are_refused),
		cmocka_unit_test(what_one_rank_finds_damaged_no_rank_uses),
		cmocka_unit_test(a_path_that_has_no_room_for_names_is_refused),
	};
	world.optimizer = "";
	world.comm = world_alone();
	if (!world.comm || !tmpdir_make(world.dir, sizeof world.dir))
		return 1;
	log_setup(2, LOG_ERROR, "test");
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	comm_close(world.comm);
	return rmdir(world.dir) ? 1 : rc;
}
