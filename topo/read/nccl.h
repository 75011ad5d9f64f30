/* nccl — one host of NCCL's topology XML. For this room alone. */
#ifndef MUSTER_TOPO_READ_NCCL_H
#define MUSTER_TOPO_READ_NCCL_H

#include "topo/read/machine.h"
#include "topo/read/read.h"
#include "topo/read/xml.h"

/* Whether a <cpu> is of that host; "" is the one of files that name none. */
bool topo_nccl_of_host(const struct xml *cpu, const char *host);

/* What <system> says of a host; the kind's parts belong to the caller. */
int topo_nccl_host(const struct topo_text *in, const struct xml *system, const char *host,
		   struct node_kind *out, struct err *e);

#endif
