"""The words of the sample task: what a persona can say, how a partner asks, and how the right reply is worded.

A reply tells the persona's value without its words ("dog": "barks at the mailman every morning"), so that
counting shared words does not find it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """Something in which people differ.

    Attributes:
        tell: what somebody says about himself, in a persona or in passing, with a {} for the value.
        replies: value -> wordings of the reply.
    """

    tell: tuple[str, ...]
    ask: tuple[str, ...]
    replies: dict[str, tuple[str, ...]]


TOPICS = {
    "pet": Topic(
        tell=("i have a {} .", "i own a {} ."),
        ask=("do you have any pets ?", "is there an animal at your place ?"),
        replies={
            "dog": ("barks at the mailman every morning .", "three walks before noon .", "such a happy wagging tail ."),
            "cat": (
                "purring on the sofa right now .",
                "the curtains got scratched again .",
                "nine lives and sharp claws .",
            ),
            "parrot": ("repeats every swear word .", "colorful feathers all over .", "squawks until the cage opens ."),
            "goldfish": (
                "swimming in circles in a bowl .",
                "just bubbles and orange fins .",
                "a very quiet aquarium .",
            ),
            "horse": (
                "gallops over the meadow at dawn .",
                "the stable smells of hay .",
                "new saddle since last month .",
            ),
            "snake": ("slithers through a heated tank .", "shed its skin last week .", "no legs and a forked tongue ."),
            "rabbit": ("hops around nibbling carrots .", "long floppy ears .", "digs burrows under the fence ."),
            "turtle": (
                "hides in its shell when scared .",
                "slow but will outlive us all .",
                "crawls to its lettuce leaf .",
            ),
        },
    ),
    "job": Topic(
        tell=("i work as a {} .", "i am a {} ."),
        ask=("what do you do for a living ?", "where do you earn your money ?"),
        replies={
            "nurse": (
                "night shifts at the hospital .",
                "giving patients their pills .",
                "bandages and blood pressure .",
            ),
            "teacher": (
                "grading homework of thirty kids .",
                "chalk , blackboard and exams .",
                "explaining fractions in class .",
            ),
            "farmer": (
                "milking cows and harvesting wheat .",
                "up at four to feed the pigs .",
                "hoping for rain on the crops .",
            ),
            "lawyer": ("arguing with judges in court .", "contracts and guilty clients .", "objection , your honor !"),
            "chef": (
                "chopping onions in a hot kitchen .",
                "writing the menu of a bistro .",
                "pots , pans and hungry guests .",
            ),
            "pilot": (
                "flying jets through turbulence .",
                "cockpit and autopilot mostly .",
                "landing on short runways .",
            ),
            "programmer": (
                "hunting bugs in software .",
                "typing python at two screens .",
                "servers crash , code gets patched .",
            ),
            "barber": (
                "cutting hair and trimming beards .",
                "scissors , combs and gossip .",
                "a shave and a fade , please .",
            ),
        },
    ),
    "food": Topic(
        tell=("i love to eat {} .", "my favorite food is {} ."),
        ask=("what do you like to eat ?", "what should i serve you for dinner ?"),
        replies={
            "pizza": (
                "melted cheese on a thin crust .",
                "pepperoni , in a cardboard box .",
                "straight from a stone oven in naples .",
            ),
            "sushi": (
                "raw salmon with wasabi .",
                "rolled in seaweed , with chopsticks .",
                "soy sauce and pickled ginger .",
            ),
            "steak": ("medium rare , off the grill .", "a juicy slab of beef .", "sirloin with pepper butter ."),
            "curry": ("extra spicy with basmati rice .", "turmeric , cumin and coconut .", "like a kitchen in delhi ."),
            "pancakes": (
                "a tall stack with maple syrup .",
                "flipped in the air at breakfast .",
                "flour , eggs and blueberries .",
            ),
            "soup": ("a steaming bowl of broth .", "noodles and a big spoon .", "whatever simmers in the pot ."),
            "salad": (
                "crisp greens with dressing .",
                "tomatoes , cucumber and croutons .",
                "leaves tossed in vinegar .",
            ),
            "burgers": (
                "a patty between two buns .",
                "with fries and ketchup .",
                "the drive through , double cheddar .",
            ),
        },
    ),
    "home": Topic(
        tell=("i live in {} .", "my home is in {} ."),
        ask=("which part of the world are you from ?", "what does it look like where you are ?"),
        replies={
            "paris": (
                "the eiffel tower is around the corner .",
                "croissants beside the seine .",
                "a tiny flat near the louvre .",
            ),
            "egypt": ("sand , camels and pyramids .", "right on the nile .", "where the pharaohs rest ."),
            "alaska": (
                "snow drifts and polar bears .",
                "northern lights all winter .",
                "glaciers as far as one can see .",
            ),
            "hawaii": ("surf , palms and a volcano .", "everyone says aloha .", "flower necklaces on the beach ."),
            "venice": ("gondolas on the canals .", "bridges and no streets , just water .", "masks at carnival time ."),
            "london": (
                "red double decker buses and drizzle .",
                "big ben strikes the hour .",
                "the queen used to wave nearby .",
            ),
            "tokyo": (
                "neon signs and crowded subways .",
                "cherry blossoms and bullet trains .",
                "mount fuji on clear days .",
            ),
            "australia": ("kangaroos in the outback .", "koalas up in the eucalyptus .", "down under , near sydney ."),
        },
    ),
    "instrument": Topic(
        tell=("i play the {} .", "i am learning the {} ."),
        ask=("do you make music ?", "what would you bring to a band ?"),
        replies={
            "piano": (
                "eighty eight black and white keys .",
                "chopin with both pedals .",
                "a grand one fills half the parlor .",
            ),
            "drums": (
                "banging with two sticks .",
                "cymbals till the police comes .",
                "keeping the beat on the snare .",
            ),
            "guitar": ("six strings and a pick .", "campfire chords mostly .", "an old fender and an amp ."),
            "violin": ("a bow and a sore chin .", "second row at the orchestra .", "paganini on a stradivarius ."),
            "flute": (
                "blowing softly over a silver tube .",
                "high notes like a bird .",
                "woodwind section , out of breath .",
            ),
            "trumpet": (
                "loud brass with three valves .",
                "puffed cheeks , jazz like armstrong .",
                "a fanfare for the parade .",
            ),
            "harp": (
                "plucking like an angel .",
                "forty seven of them to tune , plus gold .",
                "celtic tunes in heavenly glissando .",
            ),
            "accordion": (
                "squeezing the bellows for a polka .",
                "folding in and out at the fair .",
                "buttons left , paris waltz right .",
            ),
        },
    ),
    "sport": Topic(
        tell=("i train {} .", "my sport is {} ."),
        ask=("how do you stay fit ?", "do you do any exercise ?"),
        replies={
            "tennis": ("a racket and a strong serve .", "forty love , match point .", "dreaming of wimbledon ."),
            "soccer": ("scoring goals in cleats .", "eleven a side , no hands .", "the referee showed a red card ."),
            "basketball": (
                "slam dunks through the hoop .",
                "dribbling on the court , tall folks .",
                "three pointers like the nba .",
            ),
            "swimming": ("forty laps in the pool .", "goggles and chlorine .", "butterfly , then backstroke ."),
            "skiing": ("racing down powder slopes .", "chair lift up , poles in hand .", "slalom in the alps ."),
            "boxing": ("gloves on , into the ring .", "a knockout in round three .", "jab , hook , uppercut ."),
            "golf": ("eighteen holes with a caddy .", "a putt on the green .", "one under par , nice clubs ."),
            "judo": ("black belt on the mat .", "throwing opponents over the shoulder .", "bowing to the sensei ."),
        },
    ),
    "vehicle": Topic(
        tell=("i drive a {} .", "i bought a {} ."),
        ask=("how do you get around ?", "what is parked in front of your house ?"),
        replies={
            "motorcycle": (
                "leather jacket and a helmet .",
                "two wheels and a roaring harley .",
                "leaning into every curve .",
            ),
            "truck": (
                "hauling cargo on eighteen wheels .",
                "diesel , and a very long trailer .",
                "bunk behind the cabin .",
            ),
            "tractor": ("plowing mud at ten miles an hour .", "huge rear tires , no roof .", "pulls the hay wagon ."),
            "taxi": (
                "yellow , with a running meter .",
                "strangers in the back , tips in cash .",
                "fares to the airport .",
            ),
            "bus": (
                "fifty seats and a bell to stop .",
                "schedules , tickets , full aisles .",
                "kids to school , doors hiss .",
            ),
            "convertible": (
                "top down , wind in the hair .",
                "folding roof for sunny days .",
                "sunglasses and no ceiling .",
            ),
            "rescue van": (
                "flashing siren and a stretcher .",
                "everybody pulls over , paramedics inside .",
                "emergencies , oxygen on board .",
            ),
            "camper": (
                "sleeps four , with a tiny stove .",
                "a bed on wheels for campgrounds .",
                "the whole holiday in one rv .",
            ),
        },
    ),
    "hobby": Topic(
        tell=("i enjoy {} .", "my hobby is {} ."),
        ask=("what do you do for fun ?", "how do you spend your weekends ?"),
        replies={
            "gardening": (
                "watering roses and pulling weeds .",
                "tulips bloom beside the shed .",
                "compost , seeds and a shovel .",
            ),
            "painting": ("oil on canvas , with brushes .", "an easel and watercolors .", "landscapes like monet ."),
            "fishing": (
                "waiting for trout with a rod .",
                "worms on a hook by the lake .",
                "the big one got away again .",
            ),
            "knitting": ("woolen scarves for everyone .", "needles and balls of yarn .", "purl one , sweater done ."),
            "baking": ("fresh bread and cupcakes .", "dough , yeast and a rolling pin .", "frosting a birthday cake ."),
            "chess": (
                "checkmate in twelve moves .",
                "sacrificing the queen for a rook .",
                "knights , bishops and pawns .",
            ),
            "astronomy": (
                "watching saturn by telescope .",
                "stars , comets and galaxies .",
                "counting craters of the moon .",
            ),
            "photography": (
                "tripod , lens and good light .",
                "snapping portraits in black and white .",
                "developing film in a darkroom .",
            ),
        },
    ),
}

# The partner has said something about himself, or wants to hear more: the text before says what is meant.
BACK = ("and you ?", "what about you ?", "how is that with yourself ?")
MORE = ("really ? tell me more .", "oh , go on .", "sounds interesting , and then ?")

# Small talk: what the partner says, and what fits.
CHAT = {
    "hello": (
        ("hi , how are you doing ?", "hello ! how is it going ?", "hey , how are you today ?"),
        ("doing great , thanks .", "pretty good , a bit tired .", "cannot complain , glad you wrote ."),
    ),
    "bye": (
        ("i have to go now , bye .", "it was nice to meet you , good night .", "sorry , i must leave ."),
        ("take care , talk soon !", "see ya , lovely chatting .", "until next time , farewell ."),
    ),
}
