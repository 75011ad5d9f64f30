#include "tests/unit/topo/taken.h"

#include "topo/read/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct cluster opened(const char *spec)
{
	struct cluster c;
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, 0, &c, &e))
		fail_msg("%s: %s", spec, e.text);
	return c;
}

struct cluster taken(const char *text)
{
	struct cluster c;
	struct err e = ERR_INIT;
	const struct topo_text in = { .file = "it", .text = text, .len = strlen(text) };
	if (topo_read_text(&in, &c, &e))
		fail_msg("%s\n%s", text, e.text);
	return c;
}
