/*
 * fake_agent — an agent that computes nothing: wires up through PMIx, speaks
 * on the control channel, counts steps, and misbehaves when it is told to. A
 * test program is its own agent: its main calls fake_agent when it finds
 * itself started as one.
 *
 * FAKE_AGENT holds words: steps=N, step_ms=N, and die=RANK@STEP (SIGKILL itself, in its first
 * generation only), crash=RANK@STEP (in each), fail=RANK (before the first step), hang=RANK@STEP. A
 * checkpoint is a number in <run>/ckpt/step; the last rank writes it and tells the steps. All go on
 * from the one that FAKE_AGENT_RUN, the run folder, holds before any of them trains; without that
 * variable from step 0.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_FAKE_AGENT_H
#define MUSTER_TESTS_UNIT_LAUNCHER_FAKE_AGENT_H

/* The whole of its main; returns the exit status. */
int fake_agent(void);

#endif
