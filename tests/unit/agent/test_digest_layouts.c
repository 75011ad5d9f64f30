/*
 * A run of one layout saves a checkpoint. Runs of 12 layouts load it and save it again: each of the
 * checkpoints has the same state digest, and another one if one bit of the loaded state is flipped.
 */
#include "agent/engine/ckpt/format/state_digest.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

enum { STEPS = 2, WORDS = 12, LAYOUTS = 12 };

/* Few numbers divide these sizes; the vocabulary is cut into unequal parts. */
static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, 4,  24,      4, 4, 6,
				  51,     101,         16, TIE_YES, 1, 8, 0.1 },
			 mixtral = { "mixtral", FAMILY_MIXTRAL, 4, 16, 4,  2, 4, 24, 61,
				     16,        TIE_NO,         1, 8,  0.1 };

static const char *const dense[LAYOUTS] = {
	"parallel.dp=1",
	"parallel.tp=2",
	"parallel.tp=4 parallel.sp=yes",
	"parallel.pp=2",
	"parallel.pp=2 parallel.schedule=zb-v",
	"parallel.dp=2",
	"parallel.cp=2",
	"parallel.dp=2 parallel.zero=1",
	"parallel.dp=4 parallel.zero=2",
	"parallel.dp=2 parallel.zero=3",
	"parallel.cp=2 parallel.tp=2 offload.optimizer=yes",
	"parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.zero=1",
};
static const char *const experts[LAYOUTS] = {
	"parallel.dp=1",
	"parallel.tp=2",
	"parallel.pp=2",
	"parallel.dp=2",
	"parallel.ep=2 parallel.dp=2",
	"parallel.ep=4 parallel.dp=4",
	"parallel.ep=2 parallel.dp=4",
	"parallel.ep=2 parallel.dp=2 parallel.tp=2",
	"parallel.ep=2 parallel.dp=2 parallel.pp=2",
	"parallel.ep=2 parallel.dp=2 parallel.zero=1",
	"parallel.ep=2 parallel.dp=4 parallel.zero=2",
	"parallel.ep=2 parallel.dp=4 parallel.zero=3",
};

static char there[sizeof fix_dir + 8];

struct run {
	const struct tiny *model;
	struct job job;
	bool loads;
	uint32_t flip; /* this bit of the first number that the last rank counts; 0: none */
};

static void flip_bit(const struct trainee *t, uint32_t bit)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(t->state.store, &n);
	for (int k = 0; k < n; k++) {
		uint32_t bits;
		if (pieces[k].count_hi <= pieces[k].count_lo)
			continue;
		float *at = pieces[k].master + pieces[k].count_lo;
		memcpy(&bits, at, sizeof bits);
		bits ^= bit;
		memcpy(at, &bits, sizeof bits);
		return;
	}
}

static int be(struct comm *world, void *arg, struct err *e)
{
	const struct run *run = arg;
	struct trainee t;
	double loss, norm;
	int rc = trainee_resume(run->model, &run->job, world, "cpu", 1, run->loads ? fix_dir : NULL,
				&t, e);
	for (int step = t.from; step < STEPS && !rc; step++)
		rc = trainee_step(&t, step, &loss, &norm, e);
	if (!rc && run->flip && comm_rank(world) == comm_size(world) - 1)
		flip_bit(&t, run->flip);
	if (!rc)
		rc = trainee_save(&t, run->loads ? there : fix_dir, STEPS, e);
	trainee_close(&t);
	return rc;
}

static struct digest digest_in(const char *dir)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct digest d;
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/step-%08d", dir, STEPS);
	if (ckpt_verify(path, &e) || ckpt_manifest_load(path, &m, &e))
		fail_msg("%s", e.text);
	if (ckpt_state_digest(&m, &d, &e) != 1)
		fail_msg("%s: it has no state digest", path);
	ckpt_manifest_fini(&m);
	return d;
}

static void run_layout(const struct tiny *model, const char *layout, bool loads, uint32_t flip)
{
	const char *words[WORDS] = { NULL };
	struct run run = { .model = model, .loads = loads, .flip = flip };
	struct err e = ERR_INIT;
	char text[256];
	int n = 0;
	snprintf(text, sizeof text, "%s", layout);
	for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
		words[n++] = w;
	if (trainee_job(model, words, &run.job, &e))
		fail_msg("%s: %s", layout, e.text);
	struct layout l = layout_of(&run.job, (int)run.job.parallel.dp);
	if (world_run(layout_world(&l), be, &run))
		fail_msg("%s", layout);
}

static void check_layouts(const struct tiny *model, const char *first, const char *const *layouts)
{
	snprintf(there, sizeof there, "%s/again", fix_dir);
	run_layout(model, first, false, 0);
	struct digest saved = digest_in(fix_dir);
	for (int i = 0; i < LAYOUTS; i++)
		for (int flips = 0; flips < 2; flips++) {
			run_layout(model, layouts[i], true, flips ? 1U << i : 0);
			struct digest d = digest_in(there);
			if (ckpt_digest_equal(&d, &saved) == flips)
				fail_msg("%s: %s", layouts[i],
					 flips ? "a flipped bit changes nothing"
					       : "the digest is another one");
			fix_remove(there);
		}
}

static void twelve_layouts_load_and_save_one_state(void **state)
{
	(void)state;
	check_layouts(&gpt2, "parallel.tp=2 parallel.pp=2", dense);
}

static void twelve_layouts_of_experts_load_and_save_one_state(void **state)
{
	(void)state;
	check_layouts(&mixtral, "parallel.ep=2 parallel.dp=2", experts);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(twelve_layouts_load_and_save_one_state),
		TEST(twelve_layouts_of_experts_load_and_save_one_state),
	};
	log_setup(2, LOG_ERROR, "test");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
