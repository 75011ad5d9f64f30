/* Tests who keeps whose copy. */
#include "agent/engine/ckpt/memory/pairing.h"
#include "base/philox.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RANKS_MAX = 256, TRIALS = 300 };

static uint64_t seed;

static int throw_dice(uint64_t trial, uint64_t *thrown, int below)
{
	uint32_t r[4];
	philox4(philox_key(seed, PHILOX_TEST, trial), (*thrown)++, r);
	return (int)(r[0] % (uint32_t)below);
}

static void pair(const struct pairing_place *places, int n, int *keeper)
{
	struct err e = ERR_INIT;
	if (ckpt_pairing(places, n, keeper, &e))
		fail_msg("%s", e.text);
}

/* Nodes of the same size, dealt to the switches in turn. */
static int make_nodes(int nodes, int ranks_each, int leaves, struct pairing_place *out)
{
	for (int i = 0; i < nodes * ranks_each; i++)
		out[i] = (struct pairing_place){ .node = i / ranks_each,
						 .leaf = i / ranks_each % leaves };
	return nodes * ranks_each;
}

static void two_nodes_keep_each_others_copies(void **state)
{
	struct pairing_place at[RANKS_MAX];
	int keeper[RANKS_MAX];
	(void)state;
	pair(at, make_nodes(2, 2, 1, at), keeper);
	assert_int_equal(keeper[0], 2);
	assert_int_equal(keeper[1], 3);
	assert_int_equal(keeper[2], 0);
	assert_int_equal(keeper[3], 1);
}

static void on_one_node_each_process_keeps_anothers_copy(void **state)
{
	struct pairing_place at[RANKS_MAX];
	int keeper[RANKS_MAX];
	(void)state;
	pair(at, make_nodes(1, 4, 1, at), keeper);
	for (int i = 0; i < 4; i++)
		assert_int_equal(keeper[i], (i + 2) % 4);
	pair(at, make_nodes(1, 1, 1, at), keeper);
	assert_int_equal(keeper[0], PAIRING_ALONE);
}

static void copies_are_below_another_switch(void **state)
{
	struct pairing_place at[RANKS_MAX];
	int keeper[RANKS_MAX];
	(void)state;
	for (int nodes = 2; nodes <= 16; nodes++)
		for (int leaves = 2; leaves <= nodes; leaves++) {
			int n = make_nodes(nodes, 3, leaves, at);
			if ((nodes + leaves - 1) / leaves > nodes / 2)
				continue; /* the largest switch has more than half of the nodes */
			pair(at, n, keeper);
			for (int i = 0; i < n; i++)
				assert_int_not_equal(at[i].leaf, at[keeper[i]].leaf);
		}
}

/* Of 6 nodes, 5 are below one switch: 4 pairs cannot leave it. */
static void as_few_copies_as_possible_stay_below_their_switch(void **state)
{
	struct pairing_place at[RANKS_MAX];
	int keeper[RANKS_MAX], same = 0;
	(void)state;
	make_nodes(6, 1, 1, at);
	at[2].leaf = 1;
	pair(at, 6, keeper);
	for (int i = 0; i < 6; i++)
		same += at[i].leaf == at[keeper[i]].leaf;
	assert_int_equal(same, 4);
}

static void no_lost_node_loses_a_shard_anywhere(void **state)
{
	struct pairing_place at[RANKS_MAX];
	int keeper[RANKS_MAX];
	(void)state;
	for (uint64_t trial = 0; trial < TRIALS; trial++) {
		uint64_t thrown = 0;
		int kept[RANKS_MAX] = { 0 };
		int n = 2 + throw_dice(trial, &thrown, 40),
		    nodes = 2 + throw_dice(trial, &thrown, 12),
		    leaves = 1 + throw_dice(trial, &thrown, 4);
		for (int i = 0; i < n; i++) {
			int node = i < 2 ? i : throw_dice(trial, &thrown, nodes);
			at[i] = (struct pairing_place){ .node = node, .leaf = node % leaves };
		}
		pair(at, n, keeper);
		for (int i = 0; i < n; i++) {
			assert_in_range(keeper[i], 0, n - 1);
			if (at[keeper[i]].node == at[i].node)
				fail_msg("seed %" PRIu64 ", trial %" PRIu64
					 ": node %d takes the shard of rank %d with it",
					 seed, trial, at[i].node, i);
			kept[keeper[i]]++;
		}
		/* a node's copies are spread over its ranks evenly */
		for (int i = 0; i < n; i++)
			for (int j = 0; j < n; j++)
				if (at[i].node == at[j].node)
					assert_in_range(kept[i] - kept[j] + 1, 0, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_nodes_keep_each_others_copies),
		cmocka_unit_test(on_one_node_each_process_keeps_anothers_copy),
		cmocka_unit_test(copies_are_below_another_switch),
		cmocka_unit_test(as_few_copies_as_possible_stay_below_their_switch),
		cmocka_unit_test(no_lost_node_loses_a_shard_anywhere),
	};
	const char *given = getenv("MUSTER_SEED");
	seed = given ? strtoull(given, NULL, 10) : 1;
	printf("seed %" PRIu64 "\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
