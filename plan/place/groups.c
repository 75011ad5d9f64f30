#include "plan/place/groups.h"

const char *place_group_word(enum group_kind kind)
{
	static const char *const words[GROUP_KINDS] = {
		[GROUP_TP] = "tp",
		[GROUP_CP] = "cp",
		[GROUP_EP] = "ep",
		[GROUP_DP] = "dp",
		[GROUP_EDP] = "expert dp",
		[GROUP_PP] = "pp",
		[GROUP_TIE] = "tied embedding",
	};
	return words[kind];
}

/* A group's ranks: `outer` runs of `inner` ranks. Within a run ranks are `step` apart; runs are
 * `stride` apart. */
struct rank_strides {
	int inner, step, outer, stride;
};

static struct rank_strides strides_of(const struct layout *l, enum group_kind kind)
{
	/* the distance in ranks between neighbours of each kind */
	int cp = l->tp, dp = cp * l->cp, pp = dp * l->dp;
	switch (kind) {
	case GROUP_TP:
		return (struct rank_strides){ l->tp, 1, 1, 0 };
	case GROUP_CP:
		return (struct rank_strides){ l->cp, cp, 1, 0 };
	case GROUP_EP:
		return (struct rank_strides){ l->ep, dp, 1, 0 };
	case GROUP_DP:
		return (struct rank_strides){ l->cp, cp, l->dp, dp };
	case GROUP_EDP:
		return (struct rank_strides){ l->cp, cp, l->dp / l->ep, dp * l->ep };
	case GROUP_PP:
		return (struct rank_strides){ l->pp, pp, 1, 0 };
	default:
		return (struct rank_strides){ l->pp > 1 ? 2 : 1, (l->pp - 1) * pp, 1, 0 };
	}
}

int place_group_size(const struct layout *l, enum group_kind kind)
{
	struct rank_strides w = strides_of(l, kind);
	return w.inner * w.outer;
}

bool place_group_leads(const struct layout *l, enum group_kind kind, int rank)
{
	struct coords at = layout_coords(l, rank);
	switch (kind) {
	case GROUP_TP:
		return at.tp == 0;
	case GROUP_CP:
		return at.cp == 0;
	case GROUP_EP:
		return at.dp % l->ep == 0;
	case GROUP_DP:
		return at.cp == 0 && at.dp == 0;
	case GROUP_EDP:
		return at.cp == 0 && at.dp < l->ep;
	default:
		return at.pp == 0;
	}
}

void place_group_ranks(const struct layout *l, enum group_kind kind, int lead, int *ranks)
{
	struct rank_strides w = strides_of(l, kind);
	for (int o = 0; o < w.outer; o++)
		for (int i = 0; i < w.inner; i++)
			*ranks++ = lead + o * w.stride + i * w.step;
}
