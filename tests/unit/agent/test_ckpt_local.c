/* Checkpoints in the folders of nodes: whole only together, whatever fails, dies or is lost. */
#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/places/local.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_saver.h"

enum { RANKS = 4, PER_NODE = 2 };

static const struct fix_layout four = { 4, 1, 0 }, two = { 2, 1, 0 };

/* What the ranks of a world do, and where the fault is. */
struct scene {
	int per_node;
	const struct fix_layout *layout;
	int64_t steps[3]; /* to save, in order; 0: no more */
	int64_t keep;
	bool one_folder;
	int faulty; /* the rank whose calls fail; -1: none */
	enum what what;
	int at;
	int64_t want;   /* the step that a load must find; 0: none; -1: any */
	int64_t *found; /* shared: the step that was found */
	int64_t *calls; /* shared: the calls that the faulty rank has made */
	bool aborts;    /* the faulty rank aborts the world when it has published the last one */
	bool to_dir;    /* each save also goes to the folder that all share */
};

static const char *node_dir(int node)
{
	static char path[4][sizeof fix_dir + 16];
	snprintf(path[node], sizeof path[0], "%s/node%d", fix_dir, node);
	return path[node];
}

static struct comm *abort_with; /* after the next commit; NULL: none */

static int commit_and_abort(const struct ckpt_storage *s, const char *attempt, const char *path,
			    const char *aside, const void *manifest, size_t n, struct err *e)
{
	int rc = ckpt_storage_posix.ops->commit(s, attempt, path, aside, manifest, n, e);
	if (abort_with)
		comm_abort(abort_with, "another rank has died");
	return rc;
}

/* Folders, except that the world may end after a commit. */
static const struct ckpt_storage *aborting_storage(void)
{
	static struct ckpt_storage_ops ops;
	static struct ckpt_storage s;
	ops = *ckpt_storage_posix.ops;
	ops.commit = commit_and_abort;
	s = (struct ckpt_storage){ &ops, ckpt_storage_posix.arg };
	return &s;
}

static struct ckpt_local local_of(const struct scene *s, int rank)
{
	struct ckpt_local l = { .node = rank / s->per_node, .keep = s->keep, .owner = "/runs/a" };
	snprintf(l.dir, sizeof l.dir, "%s", node_dir(s->one_folder ? 0 : l.node));
	if (rank == s->faulty)
		l.storage = s->aborts ? aborting_storage() : FAULTY;
	return l;
}

static int save_all(struct comm *world, void *arg, struct err *e)
{
	struct scene *s = arg;
	int rank = comm_rank(world), rc = 0;
	struct ckpt_local local = local_of(s, rank);
	struct ckpt_writer *w = NULL;
	struct ckpt_options opt = { .dir = fix_dir,
				    .generation = 3,
				    .model = fix_model(),
				    .layout = json_object(),
				    .local = &local };
	set_fault(NOTHING, 0, 0);
	rc = ckpt_writer_open(world, &opt, &w, e);
	for (int i = 0; i < 3 && s->steps[i] && !rc; i++) {
		struct ckpt_tensor tensors[FIX_TENSORS];
		struct ckpt_state state = fix_state(s->steps[i]);
		bool last = i == 2 || !s->steps[i + 1];
		int n = fix_rank(s->layout, rank, s->steps[i], false, tensors);
		if (last && rank == s->faulty)
			set_fault(s->what, s->at, ENOSPC);
		abort_with = last && s->aborts && rank == s->faulty ? world : NULL;
		rc = ckpt_save_to(w, CKPT_TO_LOCAL | (s->to_dir ? CKPT_TO_DIR : 0), &state, tensors,
				  n, e) ||
		     ckpt_wait(w, e);
		fix_free(tensors, n);
	}
	if (s->calls && rank == s->faulty)
		*s->calls = fault.count;
	ckpt_writer_close(w);
	json_decref(opt.model);
	json_decref(opt.layout);
	return rc ? -1 : 0;
}

static int compare(const struct ckpt_tensor *t, int64_t step, struct err *e)
{
	const float *at = t->data;
	int tensor = 0;
	while (strcmp(fix_tensors[tensor].name, t->name))
		tensor++;
	for (int64_t i = t->lo[0]; i < t->hi[0]; i++)
		for (int64_t j = t->lo[1]; j < t->hi[1]; j++)
			if (*at++ != fix_value(tensor, step, i, j))
				return err_set(e, ERR_CORRUPT, "%s is wrong", t->name);
	return 0;
}

static int load_found(struct comm *world, const struct scene *s, const struct ckpt_local_found *f,
		      struct err *e)
{
	struct ckpt_tensor tensors[FIX_TENSORS];
	struct ckpt_state state;
	json_t *model = fix_model();
	int culprit, n = fix_rank(s->layout, comm_rank(world), -1, true, tensors);
	const struct ckpt_load_options opt = { .path = f->path, .model = model, .local = f };
	int rc = ckpt_load_all(world, &opt, &state, tensors, n, &culprit, e);
	for (int i = 0; i < n && !rc; i++)
		rc = compare(&tensors[i], f->manifest.state.step, e);
	fix_free(tensors, n);
	json_decref(model);
	return rc;
}

static int load_all(struct comm *world, void *arg, struct err *e)
{
	struct scene *s = arg;
	struct ckpt_local_found f;
	struct ckpt_local local = local_of(s, comm_rank(world));
	json_t *model = fix_model();
	const struct ckpt_wish wish = { .model = model };
	int rc = ckpt_local_latest(world, &local, &wish, &f, e);
	json_decref(model);
	if (rc < 0)
		return -1;
	int64_t step = rc ? f.manifest.state.step : 0;
	if (comm_rank(world) == 0 && s->found)
		*s->found = step;
	if (s->want >= 0 && step != s->want)
		return err_set(e, ERR_CORRUPT, "found step %lld", (long long)step);
	if (!rc)
		return 0;
	rc = load_found(world, s, &f, e);
	ckpt_local_found_fini(&f);
	return rc;
}

static struct scene scene_of(int64_t first, int64_t second)
{
	return (struct scene){ .per_node = PER_NODE,
			       .layout = &four,
			       .steps = { first, second },
			       .keep = 1,
			       .faulty = -1,
			       .want = -1 };
}

static int count_in(const char *dir, const char *prefix)
{
	struct dirent *f;
	int n = 0;
	DIR *d = opendir(dir);
	while (d && (f = readdir(d)))
		n += !strncmp(f->d_name, prefix, strlen(prefix));
	if (d)
		closedir(d);
	return n;
}

/* --- nothing fails --- */

static void each_node_keeps_its_part_and_all_load_the_whole(void **state)
{
	struct scene s = scene_of(4, 8);
	char path[PATH_MAX + 64];
	(void)state;
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
	for (int node = 0; node < 2; node++) {
		assert_int_equal(count_in(node_dir(node), "step-"), 1);
		assert_int_equal(count_in(node_dir(node), ATTEMPT_PREFIX), 0);
		snprintf(path, sizeof path, "%s/step-00000008", node_dir(node));
		assert_int_equal(count_in(path, "shard-"), PER_NODE);
		snprintf(path, sizeof path, "%s/step-00000008/shard-0000%d.safetensors",
			 node_dir(node), node * PER_NODE);
		assert_int_equal(access(path, F_OK), 0);
	}
	s.want = 8;
	assert_int_equal(world_run(RANKS, load_all, &s), 0);
	/* Two ranks, one on each node, in another layout. */
	s.layout = &two;
	s.per_node = 1;
	assert_int_equal(world_run(2, load_all, &s), 0);
}

static void one_snapshot_goes_to_both_tiers(void **state)
{
	struct scene s = scene_of(4, 0);
	(void)state;
	s.to_dir = true;
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
	verify(4);
	fix_load(fix_path(4, NULL), &whole, 4);
	s.want = 4;
	assert_int_equal(world_run(RANKS, load_all, &s), 0);
}

/* --- nodes are lost --- */

static void without_a_node_the_checkpoint_is_not_whole(void **state)
{
	struct scene s = scene_of(4, 8);
	(void)state;
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
	fix_remove(node_dir(1));
	s.want = 0;
	assert_int_equal(world_run(RANKS, load_all, &s), 0);
}

static void parts_of_different_checkpoints_of_a_step_do_not_mix(void **state)
{
	struct scene s = scene_of(8, 0);
	char aside[PATH_MAX + 8];
	(void)state;
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
	snprintf(aside, sizeof aside, "%s.old", node_dir(1));
	assert_int_equal(rename(node_dir(1), aside), 0);
	s.layout = &(struct fix_layout){ 4, 1, 77 }; /* the same step, cut otherwise */
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
	fix_remove(node_dir(1));
	assert_int_equal(rename(aside, node_dir(1)), 0);
	s.want = 0;
	assert_int_equal(world_run(RANKS, load_all, &s), 0);
}

static void a_truncated_shard_is_a_missing_one(void **state)
{
	struct scene s = scene_of(8, 0);
	char path[PATH_MAX + 64];
	(void)state;
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
	snprintf(path, sizeof path, "%s/step-00000008/shard-00003.safetensors", node_dir(1));
	assert_int_equal(truncate(path, 100), 0);
	s.want = 0;
	assert_int_equal(world_run(RANKS, load_all, &s), 0);
}

/* --- mistakes of a job --- */

static int open_fails_as_usage(struct comm *world, void *arg, struct err *e)
{
	struct err why = ERR_INIT;
	if (!save_all(world, arg, &why))
		return err_set(e, ERR_INTERNAL, "nodes share a folder, and it was accepted");
	if ((why.code != ERR_USAGE && why.code != ERR_PEER) || !strstr(why.text, "several nodes"))
		return err_set(e, ERR_INTERNAL, "%s", why.text);
	return 0;
}

static void nodes_that_share_a_folder_are_refused(void **state)
{
	struct scene s = scene_of(4, 0);
	(void)state;
	s.one_folder = true;
	assert_int_equal(world_run(RANKS, open_fails_as_usage, &s), 0);
	assert_int_equal(count_in(node_dir(0), ATTEMPT_PREFIX), 0);
	/* One node has no other to share with. */
	s.per_node = RANKS;
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
}

/* --- a call fails, or is the last one of a rank --- */

/* Calls of the rank in one save. */
static int calls_of(int rank, int64_t *shared)
{
	struct scene s = scene_of(4, 8);
	fix_teardown(NULL);
	fix_setup(NULL);
	s.faulty = rank;
	s.calls = shared;
	assert_int_equal(world_run(RANKS, save_all, &s), 0);
	return (int)*shared;
}

static void one_failing_call_costs_one_checkpoint_of_the_nodes(void **state)
{
	int64_t *shared = world_shared(2 * sizeof *shared);
	(void)state;
	for (int rank = 1; rank < 3; rank++) {
		int n = calls_of(rank, &shared[1]);
		assert_true(n >= 6); /* its shard, written and synced, and the name of it */
		for (int k = 1; k <= n; k++) {
			struct scene s = scene_of(4, 8);
			fix_teardown(NULL);
			fix_setup(NULL);
			s.to_dir = true;
			s.faulty = rank;
			s.what = FAIL;
			s.at = k;
			s.found = &shared[0];
			assert_int_equal(world_run(RANKS, save_all, &s), 0);
			verify(8); /* the tier that counts */
			s.faulty = -1;
			assert_int_equal(world_run(RANKS, load_all, &s), 0);
			if (shared[0] != 4 && shared[0] != 8)
				fail_msg("rank %d, call %d: step %d is found", rank, k,
					 (int)shared[0]);
		}
	}
	world_unshared(shared, 2 * sizeof *shared);
}

static void a_rank_that_dies_leaves_the_old_one_or_the_new_one(void **state)
{
	int64_t *shared = world_shared(2 * sizeof *shared);
	int outcomes[RANKS];
	(void)state;
	for (int rank = 0; rank < 3; rank += 2) {
		int n = calls_of(rank, &shared[1]);
		for (int k = 1; k <= n; k++) {
			struct scene s = scene_of(4, 8);
			fix_teardown(NULL);
			fix_setup(NULL);
			s.faulty = rank;
			s.what = DIE_AFTER;
			s.at = k;
			s.found = &shared[0];
			world_outcomes(RANKS, save_all, &s, outcomes);
			assert_int_equal(outcomes[rank], 42);
			s.faulty = -1;
			assert_int_equal(world_run(RANKS, load_all, &s), 0);
			if (shared[0] != 4 && shared[0] != 8)
				fail_msg("rank %d, call %d: step %d is found", rank, k,
					 (int)shared[0]);
		}
	}
	world_unshared(shared, 2 * sizeof *shared);
}

/* Another node may have learned that all have published it, and have removed the older one. */
static void a_node_that_does_not_learn_the_result_keeps_both(void **state)
{
	struct scene s = scene_of(4, 8);
	int64_t *found = world_shared(sizeof *found);
	(void)state;
	s.faulty = PER_NODE; /* the leader of node 1 */
	s.aborts = true;
	s.found = found;
	assert_int_equal(world_run(RANKS, save_all, &s), 0); /* the failure ends no run */
	assert_int_equal(count_in(node_dir(1), "step-00000004"), 1);
	assert_int_equal(count_in(node_dir(1), "step-00000008"), 1);
	s.faulty = -1;
	assert_int_equal(world_run(RANKS, load_all, &s), 0);
	assert_true(*found == 4 || *found == 8);
	world_unshared(found, sizeof *found);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(each_node_keeps_its_part_and_all_load_the_whole),
		CASE(one_snapshot_goes_to_both_tiers),
		CASE(without_a_node_the_checkpoint_is_not_whole),
		CASE(parts_of_different_checkpoints_of_a_step_do_not_mix),
		CASE(a_truncated_shard_is_a_missing_one),
		CASE(nodes_that_share_a_folder_are_refused),
		CASE(one_failing_call_costs_one_checkpoint_of_the_nodes),
		CASE(a_rank_that_dies_leaves_the_old_one_or_the_new_one),
		CASE(a_node_that_does_not_learn_the_result_keeps_both),
	};
	log_setup(open("/dev/null", O_WRONLY), LOG_ERROR, "test");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
