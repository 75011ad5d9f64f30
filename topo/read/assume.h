/*
 * assume — what a file leaves to the driver and the model of its GPUs tells: which GPUs a machine
 * with this PCIe has, and how the board of such GPUs joins them. The node's `unsaid` names each
 * assumption. For topo/read/ only.
 *
 * A file that a person wrote for NCCL_TOPO_FILE has no direct links, and some do not even name the
 * GPUs. Without an assumption, a plan would send over PCIe, or over a network that is faster than
 * it, what NVSwitches carry.
 */
#ifndef MUSTER_TOPO_READ_ASSUME_H
#define MUSTER_TOPO_READ_ASSUME_H

#include "topo/read/found.h"

/* Gives the GPUs a model if the file says nothing of them, and there are as many as on a board that
 * clouds rent out with PCIe of this generation. Otherwise it only adds to `unsaid` that they are
 * unknown. */
void topo_assume_models(struct found_node *m);

/* Adds the direct links that boards of the GPUs' model have. bridged: the file says that its GPUs have
 * direct links, but not where they lead; PCIe boards are then joined in pairs of neighbours. 1: the
 * links are assumed, or there are none; 0: they are unknown; -1: no memory. */
int topo_assume_links(struct found_node *m, bool bridged, struct err *e);

#endif
