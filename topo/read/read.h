/*
 * read — reads descriptions of machines from files of several formats.
 *
 * There is one table of formats (read.c). The first format whose sniff accepts the text reads it.
 * To add a format:
 *   1. topo/read/NAME.c with `static bool sniff_NAME(…)`, `static int read_NAME(…)` and one `const
 *      struct topo_format topo_format_NAME`; parse XML through xml.h and build the node through
 *      found.h, which computes the paths between devices;
 *   2. its declaration below and its row in the table of read.c;
 *   3. small files in tests/machines/, and rows for them and for broken files in
 *      tests/unit/topo/test_read.c;
 *   4. tests/fuzz/fuzz_topo_NAME.c and seeds in tests/fuzz/corpus/topo_NAME.
 *
 * The text comes from outside. The result is a cluster, or ERR_USAGE with file, line, cause and
 * remedy. What a file does not contain is 0, -1 or NULL, and the kind's `unsaid` names it.
 */
#ifndef MUSTER_TOPO_READ_READ_H
#define MUSTER_TOPO_READ_READ_H

#include "topo/cluster.h"

#include <stddef.h>

enum { TOPO_FILE_MAX = 64 << 20 }; /* largest file, bytes */

struct topo_text {
	const char *file; /* its name in errors */
	const char *text; /* NUL-terminated after `len` bytes */
	size_t len;
	int devices; /* slots of a machine without GPUs; 0: one per core */
};

struct topo_format {
	const char *name; /* "hwloc XML" */
	bool (*sniff)(const struct topo_text *in);
	int (*read)(const struct topo_text *in, struct cluster *out, struct err *e);
};

extern const struct topo_format topo_format_hwloc, topo_format_nccl, topo_format_smi,
	topo_format_json;

/* Reads a cluster from a text; the caller frees it with topo_cluster_free. */
int topo_read_text(const struct topo_text *in, struct cluster *out, struct err *e);
/* Reads a cluster from a file. nodes > 0: the file must describe one node, which is repeated that
 * many times. */
int topo_read_file(const char *path, int nodes, int devices, struct cluster *out, struct err *e);

/* For readers: makes a cluster of one node of this kind and takes ownership of the kind. */
int topo_cluster_of_node(const char *format, const struct topo_text *in, struct node_kind *kind,
			 struct cluster *out, struct err *e);

#endif
