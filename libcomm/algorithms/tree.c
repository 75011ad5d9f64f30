#include "base/numbers.h"
#include "libcomm/algorithms/tree.h"

#include "libcomm/reduce.h"

enum { BLOCK = 1024 }; /* elements that are reduced along the whole tree before the next ones */

/* The width of the root: the smallest power of two that holds n ranks. */
static int root_width(int n)
{
	int w = 1;
	while (w < n)
		w *= 2;
	return w;
}

static bool is_one_host(const int *of, int first, int end)
{
	for (int r = first + 1; r < end; r++)
		if (of[r] != of[first])
			return false;
	return true;
}

static int cut_parts(const int *of, int n, int first, int width, struct tree_part *parts, int count)
{
	if (first >= n)
		return count;
	int end = min_int(first + width, n);
	if (is_one_host(of, first, end)) {
		parts[count] = (struct tree_part){ first, end - first };
		return count + 1;
	}
	count = cut_parts(of, n, first, width / 2, parts, count);
	return cut_parts(of, n, first + width / 2, width / 2, parts, count);
}

int comm_tree_parts(const int *of, int n, struct tree_part *parts)
{
	return cut_parts(of, n, 0, root_width(n), parts, 0);
}

struct tree_fold {
	enum comm_type type;
	enum comm_op op;
	const struct tree_leaf *next; /* of a leaf */
	int n;
	size_t at, count, size, acc_size;
};

/* The node's sum of elements [at, at + count): in its left-most accumulator, or in room. Not
 * inlined: a frame would hold several of these areas. */
__attribute__((noinline)) static void *sum_node(struct tree_fold *w, int first, int width,
						double *room)
{
	const struct tree_leaf *leaf = w->next;
	if (leaf->part.first == first && leaf->part.count == min_int(width, w->n - first)) {
		w->next++;
		if (!leaf->raw)
			return leaf->data + w->at * w->acc_size;
		comm_reduce_load(w->type, room, leaf->data + w->at * w->size, w->count);
		return room;
	}
	int middle = first + width / 2;
	void *left = sum_node(w, first, width / 2, room);
	if (middle >= w->n)
		return left;
	double right_room[BLOCK]; /* the widest accumulator */
	comm_reduce_fold(w->type, w->op, left, sum_node(w, middle, width / 2, right_room),
			 w->count);
	return left;
}

void comm_tree_fold(enum comm_type type, enum comm_op op, const struct tree_leaf *leaves, int n,
		    void *out, size_t count)
{
	struct tree_fold w = { .type = type,
			       .op = op,
			       .n = n,
			       .size = comm_type_size(type),
			       .acc_size = comm_reduce_acc_size(type) };
	double room[BLOCK];
	for (; w.at < count; w.at += BLOCK) {
		w.next = leaves;
		w.count = count - w.at < BLOCK ? count - w.at : BLOCK;
		void *sum = sum_node(&w, 0, root_width(n), room);
		comm_reduce_store(type, op, (char *)out + w.at * w.size, sum, w.count, n);
	}
}
