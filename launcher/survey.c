#include "launcher/survey.h"

const char *launcher_node_state_text(enum node_state s)
{
	/* clang-format off */
	static const char *const texts[NODE_STATES] = {
		[NODE_UP]          = "is up",
		[NODE_DOWN]        = "is down",
		[NODE_DRAIN]       = "is drained",
		[NODE_FAIL]        = "is failing",
		[NODE_LEFT]        = "has left the job",
		[NODE_UNREACHABLE] = "cannot be reached",
		[NODE_UNKNOWN]     = "has an unknown state",
	};
	/* clang-format on */
	return texts[s];
}
