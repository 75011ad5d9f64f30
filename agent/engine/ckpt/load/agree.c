#include "agent/engine/ckpt/load/agree.h"

#include "agent/engine/ckpt/save/commit.h"

/* Every rank gets the error of this code of the rank *culprit. */
static int share_error(struct comm *group, enum err_code code, const struct err *mine, int *culprit,
		       struct err *e)
{
	bool here = *culprit == comm_rank(group);
	struct err shared = here ? *mine : (struct err)ERR_INIT;
	ckpt_commit_share_result(group, *culprit, here ? -1 : 0, &shared);
	if (shared.code != code)
		*culprit = -1; /* the group has failed */
	return err_set(e, shared.code, "%s", shared.text);
}

int ckpt_agree_most(struct comm *group, int rc, const struct err *mine, int64_t *most, int *culprit,
		    struct err *e)
{
	int size = comm_size(group);
	int64_t code = rc ? (int64_t)mine->code : ERR_NONE;
	int64_t words[2] = { code * size + size - 1 - comm_rank(group), *most };
	*culprit = -1;
	if (comm_all_reduce(group, words, words, 2, COMM_I64, COMM_MAX, e))
		return -1;
	*most = words[1];
	if (words[0] / size == ERR_NONE)
		return 0;
	*culprit = size - 1 - (int)(words[0] % size);
	return share_error(group, (enum err_code)(words[0] / size), mine, culprit, e);
}

int ckpt_agree(struct comm *group, int rc, const struct err *mine, int *culprit, struct err *e)
{
	int64_t nothing = 0;
	return ckpt_agree_most(group, rc, mine, &nothing, culprit, e);
}

int ckpt_agree_result(struct comm *group, int rc, const struct err *mine, struct err *e)
{
	int culprit;
	return ckpt_agree(group, rc, mine, &culprit, e);
}

int ckpt_agree_all(struct comm *group, int rc, const struct err *mine, int64_t number, int64_t *all,
		   int *culprit, struct err *e)
{
	int64_t word = rc ? -(int64_t)mine->code : number, worst = ERR_NONE;
	*culprit = -1;
	if (comm_all_gather(group, &word, all, 1, COMM_I64, e))
		return -1;
	for (int r = comm_size(group) - 1; r >= 0; r--)
		if (all[r] < 0 && -all[r] >= worst) {
			worst = -all[r];
			*culprit = r;
		}
	return *culprit < 0 ? 0 : share_error(group, (enum err_code)worst, mine, culprit, e);
}
