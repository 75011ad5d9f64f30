/*
 * tree — the hosts of a world tell each other their ranks' addresses.
 *
 * The first ranks of the hosts form a binary tree. Each sends its parent the book of its subtree's
 * hosts, and gets the book of all hosts from it. So a host connects to at most COMM_NEAR others, however
 * many there are.
 *
 * The connections authenticate by the secrets of both ends' cards (tcp/handshake.h). The books
 * contain the secrets of other ranks, so they are always encrypted, whatever [network] integrity is:
 * by base/seal.h, with a key for each direction that is made of both ends' secrets.
 */
#ifndef MUSTER_LIBCOMM_WIRE_TREE_H
#define MUSTER_LIBCOMM_WIRE_TREE_H

#include "base/buf.h"
#include "libcomm/world.h"

/* Collective over the first ranks of all hosts. near: those that are next to this one in the tree, the
 * parent first if it has one; w->peers must have them. *book: of this host; afterwards of all. */
int comm_tree_exchange(struct world *w, const int *near, int n_near, bool has_parent,
		       struct buf *book, struct err *e);

#endif
