"""Lowerings: rlx ops into the dialects that back ends take."""
