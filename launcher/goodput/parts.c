#include "launcher/goodput/parts.h"

static const struct {
	const char *name, *doc;
} parts[] = {
#define PART_ROW(id, name, doc) [GOODPUT_##id] = { name, doc },
	GOODPUT_PARTS(PART_ROW)
#undef PART_ROW
};

const char *goodput_part_name(enum goodput_part p)
{
	return parts[p].name;
}

const char *goodput_part_doc(enum goodput_part p)
{
	return parts[p].doc;
}
