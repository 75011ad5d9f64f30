#include "launcher/survey.h"

const char *launcher_node_state_text(enum node_state s)
{
	static const char *const texts[NODE_STATES] = {
		[NODE_UP] = "is up",
		[NODE_DOWN] = "is down",
		[NODE_DRAIN] = "is drained",
		[NODE_FAIL] = "has failed",
		[NODE_LEFT] = "has left the job",
		[NODE_UNREACHABLE] = "cannot be reached",
	};
	return texts[s];
}
