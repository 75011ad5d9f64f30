/*
 * processors — how many of a GPU's processors NCCL may take for a group's operations. Each is also
 * a channel with its own buffers, so that the planner counts them (plan/memory_library.h).
 *
 * An operation behind computation keeps the processors that it takes for as long as it waits. With
 * NCCL's default of up to 32, an operation leaves products only three quarters of a GPU. A message
 * fills a network adapter of 400 Gb/s with 4; 8 serve links inside a node too. The group of all
 * ranks carries a few numbers per step. NCCL_MAX_CTAS overrides these. With
 * NCCL_COMM_SPLIT_SHARE_RESOURCES=1 NCCL gives a group at most the channels of the one that it is
 * split from, so that the group of all ranks then has no limit (libcomm/device/cuda/nccl.c).
 */
#ifndef MUSTER_PLAN_SPEC_PROCESSORS_H
#define MUSTER_PLAN_SPEC_PROCESSORS_H

enum {
	PROCESSORS_DEFAULT = 32,
	PROCESSORS_BEHIND = 16,
	PROCESSORS_OF_MESSAGES = 8,
	PROCESSORS_OF_ALL_RANKS = 2,
};

#endif
