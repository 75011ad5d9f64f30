/* What a run saves and how it goes on. The checkpoint room is played here, in one folder. */
#include "agent/state.h"
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

/* --- the room below --- */

static struct {
	struct ckpt_tensor *saved; /* of the last ckpt_save */
	int n_saved;
	int newest;                /* step of the newest checkpoint that there is, 0: none */
	int damaged;               /* those of this step and later do not load, */
	enum err_code why;         /* for this reason, */
	bool elsewhere;            /* and only on rank 1 */
	struct comm *comm;
	int loads;
	char dir[64];
} world;

int ckpt_save(struct ckpt_writer *w, const struct ckpt_state *state, const struct ckpt_tensor *tensors, int n, struct err *e)
{
	(void)w;
	(void)state;
	(void)e;
	free(world.saved);
	world.saved = malloc((size_t)n * sizeof *tensors + 1);
	memcpy(world.saved, tensors, (size_t)n * sizeof *tensors);
	world.n_saved = n;
	return 0;
}

int ckpt_latest(const char *dir, json_t *model, char **path, void (*note)(const char *text, void *arg), void *arg, struct err *e)
{
	(void)model;
	(void)note;
	(void)arg;
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

int ckpt_load(const char *path, json_t *model, struct ckpt_state *state, struct ckpt_tensor *tensors, int n,
	      const struct ckpt_watch *watch, struct err *e)
{
	(void)model;
	(void)watch;
	int step = atoi(strrchr(path, '-') + 1);
	world.loads++;
	for (int i = 0; i < n; i++)
		tensors[i].data[0] = (float)step;
	if (world.damaged && step >= world.damaged && (!world.elsewhere || comm_rank(world.comm) == 1))
		return err_set(e, world.why, "%s: a bit has changed", path);
	*state = (struct ckpt_state){ .step = step, .samples = 8 * step };
	return 0;
}

/* --- who saves what --- */

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
	model_shape(&job, &s);
	return s;
}

static int index_of(const struct ckpt_tensor *list, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i].name, name))
			return i;
	return -1;
}

/* How often each element of each tensor of the whole model was saved. */
struct tally {
	struct ckpt_tensor *whole;
	int n;
	unsigned char **times;
};

static struct tally tally_open(const struct model_shape *s)
{
	struct tally t;
	assert_int_equal(state_whole(s, &t.whole, &t.n, NULL), 0);
	t.times = calloc((size_t)t.n, sizeof *t.times);
	for (int i = 0; i < t.n; i++)
		t.times[i] = calloc((size_t)(t.whole[i].shape[0] * t.whole[i].shape[1]), 1);
	return t;
}

static void tally_add(struct tally *t, const struct ckpt_tensor *box)
{
	int i = index_of(t->whole, t->n, box->name);
	assert_true(i >= 0);
	assert_memory_equal(box->shape, t->whole[i].shape, sizeof box->shape);
	for (int64_t r = box->lo[0]; r < box->hi[0]; r++)
		for (int64_t c = box->lo[1]; c < box->hi[1]; c++)
			t->times[i][r * box->shape[1] + c]++;
}

static void tally_close(struct tally *t)
{
	for (int i = 0; i < t->n; i++) {
		for (int64_t k = 0; k < t->whole[i].shape[0] * t->whole[i].shape[1]; k++)
			assert_int_equal(t->times[i][k], 1);
		free(t->times[i]);
	}
	free(t->times);
	free(t->whole);
}

static void save_as(const struct model_shape *s, const struct layout *l, const struct coords *me, struct tally *t)
{
	struct stage stages[8];
	struct catalogue c;
	assert_int_equal(layout_stages(s, l->pp, stages, NULL), 0);
	assert_int_equal(catalogue_build(s, l->tp, me->tp, &stages[me->pp], &c, NULL), 0);
	float *memory = calloc((size_t)c.elements * 3, sizeof *memory);
	struct state_view view = { &c, memory, memory + c.elements, memory + 2 * c.elements, NULL };
	struct ckpt_state at = { 0 };
	assert_int_equal(state_save(NULL, &at, &view, l, me, NULL), 0);
	double saved[8], elements = 0;
	for (int i = 0; i < world.n_saved; i++) {
		const struct ckpt_tensor *box = &world.saved[i];
		elements += (double)((box->hi[0] - box->lo[0]) * (box->hi[1] - box->lo[1]));
		tally_add(t, box);
	}
	/* The plan counts their copy as memory. */
	catalogue_saved(s, l->tp, me->tp, &stages[me->pp], l->dp, saved);
	assert_true(elements == saved[me->dp]);
	free(memory);
	catalogue_free(&c);
}

static void each_element_is_saved_by_exactly_one_rank(void **state)
{
	(void)state;
	static const struct layout layouts[] = {
		{ 1, 1, 1 }, { 2, 1, 1 }, { 1, 2, 1 }, { 1, 1, 2 }, { 2, 2, 2 }, { 2, 3, 1 }, { 1, 1, 5 }, { 1, 8, 1 }, { 2, 7, 2 },
	};
	for (int family = FAMILY_GPT2; family <= FAMILY_LLAMA; family++) {
		struct model_shape s = shape_of((enum job_family)family);
		for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
			struct tally t = tally_open(&s);
			for (int rank = 0; rank < layout_world(&layouts[i]); rank++) {
				struct coords me = layout_coords(&layouts[i], rank);
				save_as(&s, &layouts[i], &me, &t);
			}
			tally_close(&t);
		}
	}
}

static void every_parameter_has_its_moments(void **state)
{
	(void)state;
	struct model_shape s = shape_of(FAMILY_GPT2);
	struct ckpt_tensor *list;
	int n, params = 0;
	assert_int_equal(state_whole(&s, &list, &n, NULL), 0);
	for (int i = 0; i < n; i++) {
		char name[128];
		if (!strncmp(list[i].name, "optim.", 6))
			continue;
		params++;
		snprintf(name, sizeof name, "optim.m.%s", list[i].name);
		assert_true(index_of(list, n, name) >= 0);
		snprintf(name, sizeof name, "optim.v.%s", list[i].name);
		assert_true(index_of(list, n, name) >= 0);
	}
	assert_int_equal(n, 3 * params);
	free(list);
}

/* --- going on --- */

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
	world.loads = 0;
	assert_int_equal(mkdir(folder("", a), 0700), 0);
	assert_int_equal(mkdir(folder("", b), 0700), 0);
}

static void sweep(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s/*", world.dir);
	assert_int_equal(system(command), 0);
}

struct fixture {
	struct param param;
	struct catalogue catalogue;
	float numbers[3];
	struct state_view view;
};

static struct fixture one_number(void)
{
	return (struct fixture){ .param = { .name = "x", .dims = 1, .shape = { 1, 1 }, .hi = { 1, 1 }, .count = 1 } };
}

static int resume(const char *wish, struct fixture *f, struct ckpt_state *at, struct err *e)
{
	f->catalogue = (struct catalogue){ &f->param, 1, 1 };
	f->view = (struct state_view){ &f->catalogue, &f->numbers[0], &f->numbers[1], &f->numbers[2], NULL };
	return state_resume(world.comm, wish, world.dir, NULL, &f->view, at, e);
}

static void none_and_nothing_there_begin_anew(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	world.newest = world.loads = 0;
	assert_int_equal(resume("none", &f, &at, &e), 0);
	assert_int_equal(resume("", &f, &at, &e), 0);
	assert_int_equal(resume("auto", &f, &at, &e), 0);
	assert_int_equal(world.loads, 0);
}

static void auto_takes_the_newest(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	checkpoints_at(4, 8);
	assert_int_equal(resume("auto", &f, &at, &e), 1);
	assert_int_equal(at.step, 8);
	assert_int_equal(at.samples, 64);
	for (int i = 0; i < 3; i++)
		assert_true(f.numbers[i] == 8);
	sweep();
}

static void a_damaged_one_is_set_aside_and_the_one_before_it_used(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	checkpoints_at(4, 8);
	world.damaged = 8;
	world.why = ERR_CORRUPT;
	/* An earlier one with this name must not be in the way. */
	assert_int_equal(mkdir(folder("damaged-", 8), 0700), 0);
	close(open(strcat(folder("damaged-", 8), "/x"), O_CREAT | O_WRONLY, 0600));
	assert_int_equal(resume("auto", &f, &at, &e), 1);
	assert_int_equal(at.step, 4);
	assert_true(access(folder("", 8), F_OK) != 0);
	assert_int_equal(access(strcat(folder("damaged-", 8), ".1"), F_OK), 0);
	sweep();
}

static void when_all_are_damaged_the_run_does_not_start_over(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	checkpoints_at(4, 8);
	world.damaged = 1;
	world.why = ERR_CORRUPT;
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	for (int i = 0; i < 3; i++)
		assert_true(f.numbers[i] == 0);
	/* Nor does the next generation. */
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	sweep();
}

static void what_cannot_be_read_now_is_not_called_damaged(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	checkpoints_at(4, 8);
	world.damaged = 8;
	world.why = ERR_IO;
	assert_int_equal(resume("auto", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_int_equal(access(folder("", 8), F_OK), 0);
	sweep();
}

/* Where the run's own checkpoints are: in another folder, empty, for a run that begins from someone else's. */
static int resume_elsewhere(const char *wish, struct fixture *f, struct ckpt_state *at, struct err *e)
{
	f->catalogue = (struct catalogue){ &f->param, 1, 1 };
	f->view = (struct state_view){ &f->catalogue, &f->numbers[0], &f->numbers[1], &f->numbers[2], NULL };
	return state_resume(world.comm, wish, "/nowhere", NULL, &f->view, at, e);
}

static void a_beginning_that_was_asked_for_by_name_is_loaded_or_refused(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	char path[128];
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
	sweep();
}

static void a_run_that_has_begun_goes_on_from_its_own(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	checkpoints_at(4, 8);
	assert_int_equal(resume("/nowhere/step-00000099", &f, &at, &e), 1);
	assert_int_equal(at.step, 8);
	assert_int_equal(resume(folder("", 8), &f, &at, &e), 1);
	assert_int_equal(at.step, 8);
	sweep();
}

static void nothing_is_trained_past_a_newer_checkpoint(void **state)
{
	(void)state;
	struct fixture f = one_number();
	struct ckpt_state at;
	struct err e = ERR_INIT;
	checkpoints_at(4, 8);
	assert_int_equal(resume("none", &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "step-00000008"));
	e = (struct err)ERR_INIT;
	assert_int_equal(resume(folder("", 4), &f, &at, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "step-00000008"));
	assert_int_equal(world.loads, 0);
	sweep();
}

static int resume_with_others(struct comm *comm, void *arg, struct err *e)
{
	(void)arg;
	struct fixture f = one_number();
	struct ckpt_state at;
	world.comm = comm;
	if (resume("auto", &f, &at, e) != 1)
		return -1;
	if (at.step != 4 || f.numbers[0] != 4)
		return err_set(e, ERR_INTERNAL, "rank %d went on from step %d", comm_rank(comm), (int)at.step);
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
	assert_int_equal(state_dir(&job, run, dir, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	run[JOB_PATH - 80] = '\0';
	assert_int_equal(state_dir(&job, run, dir, &e), 0);
	assert_string_equal(dir + JOB_PATH - 80, "/ckpt");
	strcpy(job.checkpoint.dir, "elsewhere");
	assert_int_equal(state_dir(&job, run, dir, &e), 0);
	assert_string_equal(dir, "elsewhere");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_element_is_saved_by_exactly_one_rank),
		cmocka_unit_test(every_parameter_has_its_moments),
		cmocka_unit_test(none_and_nothing_there_begin_anew),
		cmocka_unit_test(auto_takes_the_newest),
		cmocka_unit_test(a_damaged_one_is_set_aside_and_the_one_before_it_used),
		cmocka_unit_test(when_all_are_damaged_the_run_does_not_start_over),
		cmocka_unit_test(what_cannot_be_read_now_is_not_called_damaged),
		cmocka_unit_test(a_beginning_that_was_asked_for_by_name_is_loaded_or_refused),
		cmocka_unit_test(a_run_that_has_begun_goes_on_from_its_own),
		cmocka_unit_test(nothing_is_trained_past_a_newer_checkpoint),
		cmocka_unit_test(what_one_rank_finds_damaged_no_rank_uses),
		cmocka_unit_test(a_path_that_has_no_room_for_names_is_refused),
	};
	world.comm = world_alone();
	if (!world.comm || !tmpdir_make(world.dir, sizeof world.dir))
		return 1;
	log_setup(2, LOG_ERROR, "test");
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	free(world.saved);
	comm_close(world.comm);
	return rmdir(world.dir) ? 1 : rc;
}
