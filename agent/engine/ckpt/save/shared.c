/* shared: proves that all ranks see one folder of checkpoints. */
#include "agent/engine/ckpt/save/commit.h"

static int visit_nothing(void *arg, const char *name, struct err *e)
{
	(void)arg;
	(void)name;
	(void)e;
	return 0;
}

/* Whether this rank finds the entry that rank 0 has made. Its name is new, so that no client of a
 * network file system knows from earlier that it does not exist. */
static int look_for(const struct commit *c, const struct attempt *a, struct err *e)
{
	struct err why = ERR_INIT;
	if (!c->storage->ops->list(c->storage, a->path, visit_nothing, NULL, &why))
		return 0;
	if (why.code != ERR_NOTFOUND)
		return err_set(e, why.code, "%s", why.text);
	return err_set(e, ERR_NOTFOUND,
		       "%s: the nodes do not share this folder: rank %d on %s does not find what "
		       "rank 0 has made in it; set checkpoint.dir to a folder on a file system "
		       "that all nodes share",
		       c->dir, comm_rank(c->group), c->node ? c->node : "its node");
}

int ckpt_commit_check_shared(const struct commit *c, int *culprit, struct err *e)
{
	struct attempt a = { .name = "" };
	struct comm *group = c->group;
	int rc = 0;
	*culprit = -1;
	if (*c->storage->ops->scheme || comm_size(group) == 1)
		return 0;
	if (comm_rank(group) == 0)
		rc = ckpt_attempt_make(c->storage, c->dir, 0, c->generation, &a, e);
	if (ckpt_commit_share_result(group, 0, rc, e)) {
		*culprit = 0;
		return -1;
	}
	if (comm_broadcast(group, &a, sizeof a, COMM_U8, 0, e))
		return -1;
	struct err mine = ERR_INIT;
	rc = look_for(c, &a, &mine);
	int32_t first = rc ? comm_rank(group) : comm_size(group);
	int failed = comm_all_reduce(group, &first, &first, 1, COMM_I32, COMM_MIN, e);
	if (comm_rank(group) == 0)
		c->storage->ops->remove(c->storage, a.path, NULL);
	if (failed || first == comm_size(group))
		return failed;
	*culprit = first;
	int result = ckpt_commit_share_result(group, first, rc, &mine);
	if (e)
		*e = mine;
	return result;
}
