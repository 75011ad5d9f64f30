/* nccl — reads one host of NCCL's topology XML. For topo/read/ only. */
#ifndef MUSTER_TOPO_READ_NCCL_H
#define MUSTER_TOPO_READ_NCCL_H

#include "topo/read/found.h"
#include "topo/read/read.h"
#include "topo/read/xml.h"

/* Whether a <cpu> belongs to that host; "" is the host of files that name none. */
bool topo_nccl_of_host(const struct xml *cpu, const char *host);

/* Builds the kind of one host of <system>; the caller owns the kind's parts. */
int topo_nccl_host(const struct topo_text *in, const struct xml *system, const char *host,
		   struct node_kind *out, struct err *e);

#endif
