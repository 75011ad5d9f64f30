/*
 * read — machines described in files, whoever wrote them.
 *
 * One table of formats (read.c); the first whose sniff knows the text reads it. To add one:
 *   1. topo/read/NAME.c with `static bool sniff(…)`, `static int read(…)` and one `const struct
 *      topo_format format_NAME`; XML is taken through xml.h, and a node's parts are put together by
 *      machine.h, which knows how near two devices are;
 *   2. its declaration below, its line in read.c's table;
 *   3. small files of it in tests/machines/, rows for them and for broken ones in
 *      tests/unit/topo/test_read.c;
 *   4. tests/fuzz/fuzz_topo_NAME.c and seeds in tests/fuzz/corpus/topo_NAME.
 *
 * The text comes from outside: whatever it holds, the answer is a cluster or ERR_USAGE with file,
 * line, cause and remedy. What a file does not tell is 0, -1 or NULL, and is said in the kind's
 * `unsaid`.
 */
#ifndef MUSTER_TOPO_READ_READ_H
#define MUSTER_TOPO_READ_READ_H

#include "topo/cluster.h"

#include <stddef.h>

enum { TOPO_FILE_MOST = 64 << 20 }; /* bytes of a file */

struct topo_text {
	const char *file; /* names it in errors */
	const char *text; /* NUL-terminated after `len` bytes */
	size_t len;
	int devices; /* slots of a machine without GPUs; 0: one a core */
};

struct topo_format {
	const char *name; /* "hwloc XML" */
	bool (*sniff)(const struct topo_text *in);
	int (*read)(const struct topo_text *in, struct cluster *out, struct err *e);
};

extern const struct topo_format topo_format_hwloc, topo_format_nccl, topo_format_smi,
	topo_format_json;

/* A cluster from a text; the caller frees it with topo_cluster_free. */
int topo_read_text(const struct topo_text *in, struct cluster *out, struct err *e);
/* From a file; with nodes > 0, for a file of one node, that many of it. */
int topo_read_file(const char *path, int nodes, int devices, struct cluster *out, struct err *e);

/* For readers: a cluster of one node of this kind, which then belongs to it. */
int topo_one_node(const char *format, const struct topo_text *in, struct node_kind *kind,
		  struct cluster *out, struct err *e);

#endif
