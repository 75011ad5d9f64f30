/* local: the folder of one node. */
#include "agent/engine/ckpt/places/local.h"

#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/save/commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE ATTEMPT_PREFIX "node-"

int ckpt_local_lead(struct comm *group, int node, bool *leads, struct err *e)
{
	int size = comm_size(group), first = 0;
	int32_t mine = node, *all = calloc((size_t)size, sizeof *all);
	if (!all) {
		err_set(e, ERR_NOMEM, "no memory for the nodes of %d ranks", size);
		comm_abort(group, e->text);
		return -1;
	}
	int rc = comm_all_gather(group, &mine, all, 1, COMM_I32, e);
	while (!rc && all[first] != node)
		first++;
	*leads = first == comm_rank(group);
	free(all);
	return rc;
}

/* --- opening --- */

static const struct ckpt_storage *storage_of(const struct ckpt_local *l)
{
	return l->storage ? l->storage : ckpt_storage_of(l->dir);
}

static int prepare_folder(const struct ckpt_local *l, uint32_t generation, struct err *e)
{
	const struct ckpt_storage *s = storage_of(l);
	if (s->ops->prepare(s, l->dir, e) ||
	    (l->owner && ckpt_folder_set_owner(s, l->dir, l->owner, "checkpoint.local", e)))
		return -1;
	ckpt_folder_remove_attempts(s, l->dir, generation, NULL);
	return 0;
}

/* Each leader makes an entry whose name tells its node, and looks for those of other nodes. */
struct probe {
	const char *prefix, *own;
	bool other;
};

static int look_at_probe(void *arg, const char *name, struct err *e)
{
	struct probe *p = arg;
	(void)e;
	p->other |= !strncmp(name, p->prefix, strlen(p->prefix)) && strcmp(name, p->own);
	return 0;
}

static int check_alone(const struct ckpt_local *l, const char *prefix, const char *own,
		       struct err *e)
{
	const struct ckpt_storage *s = storage_of(l);
	struct probe p = { prefix, own, false };
	if (s->ops->list(s, l->dir, look_at_probe, &p, e))
		return -1;
	if (!p.other)
		return 0;
	return err_set(
		e, ERR_USAGE,
		"checkpoint.local = %s: several nodes see this folder, but each needs one of "
		"its own; name one on a disk of the node, or put %%N, the node's name, into "
		"the path",
		l->dir);
}

static int check_all_alone(struct comm *group, const struct ckpt_local *l, bool leads,
			   struct err *e)
{
	const struct ckpt_storage *s = storage_of(l);
	struct attempt a = { .name = "" };
	struct err mine = ERR_INIT;
	char prefix[80], own[96], path[PATH_MAX] = "";
	int rc = comm_rank(group) == 0 ? ckpt_attempt_name(0, 0, &a, &mine) : 0;
	if (ckpt_agree_result(group, rc, &mine, e) ||
	    comm_broadcast(group, &a, sizeof a, COMM_U8, 0, e))
		return -1;
	snprintf(prefix, sizeof prefix, PROBE "%016llx-", (unsigned long long)a.nonce);
	snprintf(own, sizeof own, "%s%d", prefix, l->node);
	if (leads)
		rc = ckpt_storage_join(path, sizeof path, l->dir, own, &mine) ||
				     s->ops->begin(s, path, true, &mine)
			     ? -1
			     : 0;
	bool made = leads && !rc;
	int failed = ckpt_agree_result(group, rc, &mine, e); /* also: all have made theirs */
	if (!failed) {
		rc = leads ? check_alone(l, prefix, own, &mine) : 0;
		failed = ckpt_agree_result(group, rc, &mine, e);
	}
	if (made)
		s->ops->remove(s, path, NULL);
	return failed;
}

int ckpt_local_open(struct comm *group, const struct ckpt_local *l, uint32_t generation,
		    struct err *e)
{
	bool leads;
	struct err mine = ERR_INIT;
	if (ckpt_local_lead(group, l->node, &leads, e))
		return -1;
	int rc = leads ? prepare_folder(l, generation, &mine) : 0;
	if (ckpt_agree_result(group, rc, &mine, e))
		return -1;
	return check_all_alone(group, l, leads, e);
}

/* --- removing --- */

struct last_copies {
	int64_t keep, committed;
};

static enum folder_verdict judge_by_number(const void *arg, const struct folder_entry *entry,
					   int64_t counted)
{
	const struct last_copies *l = arg;
	bool goes = entry->step == l->committed ? strchr(entry->name, '.') != NULL
						: counted >= l->keep;
	return goes ? FOLDER_GOES : FOLDER_COUNTS;
}

int ckpt_local_prune(const struct ckpt_storage *s, const char *dir, int64_t keep, int64_t committed,
		     struct err *e)
{
	const struct last_copies l = { keep, committed };
	const struct folder_judge by_number = { judge_by_number, &l, false };
	return ckpt_folder_sweep(s, dir, &by_number, e);
}

struct valid_states {
	const struct ckpt_local *local;
	bool (*stays)(const void *arg, int64_t step, uint32_t generation);
	const void *arg;
};

/* What cannot be read stays. */
static enum folder_verdict judge_by_state(const void *arg, const struct folder_entry *entry,
					  int64_t counted)
{
	const struct valid_states *v = arg;
	char path[PATH_MAX];
	struct manifest m;
	(void)counted;
	if (ckpt_storage_join(path, sizeof path, v->local->dir, entry->name, NULL) ||
	    ckpt_manifest_load_from(storage_of(v->local), path, &m, NULL))
		return FOLDER_STAYS;
	bool stays = v->stays(v->arg, m.state.step, m.generation);
	ckpt_manifest_fini(&m);
	return stays ? FOLDER_STAYS : FOLDER_GOES;
}

int ckpt_local_remove(const struct ckpt_local *l,
		      bool (*stays)(const void *arg, int64_t step, uint32_t generation),
		      const void *arg, struct err *e)
{
	const struct valid_states v = { l, stays, arg };
	const struct folder_judge by_state = { judge_by_state, &v, false };
	return ckpt_folder_sweep(storage_of(l), l->dir, &by_state, e);
}
