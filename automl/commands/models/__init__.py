"""Does for several commands what they share: a study's models, chosen, scored and uploaded."""
